"""A table in a narrow terminal keeps every character of every number."""

from rich.console import Console
from rich.table import Table

from highrank.folded import folded


def test_nothing_of_a_number_is_cut_off():
    table = Table("KL found", "bound", "parameters")
    table.add_row("1.84e-01", "7.8e-04", "21,500,620")
    console = Console(width=24)
    with console.capture() as seen:
        console.print(folded(table))
    cells = [line.split("│")[1:-1] for line in seen.get().splitlines() if line.startswith("│")]
    assert ["".join(part.strip() for part in column) for column in zip(*cells, strict=True)] == [
        "1.84e-01", "7.8e-04", "21,500,620",
    ]  # fmt: skip
    assert "…" not in seen.get()
