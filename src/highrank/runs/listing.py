"""The list of runs in a folder, read from their JSON files without importing torch, which takes seconds."""

from dataclasses import dataclass
from pathlib import Path

from highrank.data.catalog import Level
from highrank.evaluation.score import perplexity
from highrank.files import read_json


@dataclass
class RunRow:
    """A row of the list of runs. For a damaged run, it holds what could be read."""

    run: str
    recipe: str = "?"
    corpus: str = "?"  # a name in the catalog, or the path of a folder
    level: Level = "word"
    epoch: int | None = None
    best_valid_ppl: float | None = None
    valid_ppl: float | None = None
    test_ppl: float | None = None
    state: str = ""


def list_runs(folder: Path) -> list[RunRow]:
    """Return the runs in a folder and its subfolders, without exports and hidden folders, such as temporary ones."""
    folders = [path.parent for path in sorted(folder.glob("**/run.json"))]
    shown = [path for path in folders if not any(name.startswith(".") for name in path.relative_to(folder).parts)]
    return [_read_row(path) for path in shown if not (path / "index.json").exists()]


def _read_row(folder: Path) -> RunRow:
    row = RunRow(str(folder))
    try:
        info = read_json(folder / "run.json", "run description")
        row.recipe = info["recipe"]["name"]
        row.corpus = info["recipe"]["data"]["corpus"]
        row.level = info["corpus_level"]
        step = None
        if (folder / "checkpoint.json").exists():
            state = read_json(folder / "checkpoint.json", "checkpoint")["state"]
            step = int(state["step"])
            row.epoch = int(state["epoch"])
            row.state = "finished" if state["finished"] else "can resume"
            if state["best_valid"] is not None:
                row.best_valid_ppl = perplexity(state["best_valid"])
        if (folder / "summary.json").exists():
            summary = read_json(folder / "summary.json", "summary")
            if summary["updates"] == step:  # an interrupted or killed run keeps the summary of its previous pause
                row.valid_ppl = float(summary["valid_ppl"])
                row.test_ppl = float(summary["test_ppl"])
    except (KeyError, TypeError, ValueError) as error:  # a UserError is a ValueError
        row.state = f"damaged: {error}"
    return row
