from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "examples" / "bottleneck.ipynb"


def test_the_notebook_runs_and_is_stored_without_outputs(monkeypatch):
    monkeypatch.delenv("MPLBACKEND", raising=False)  # other tests run commands, which set it
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs for cell in cells)
    assert "STEPS = 600" in cells[0].source
    cells[0].source = cells[0].source.replace("STEPS = 600", "STEPS = 5")
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": NOTEBOOK.parent}}).execute()
    outputs = [output for cell in cells for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 5
    assert not any(output.get("name") == "stderr" for output in outputs)
