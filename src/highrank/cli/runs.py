"""`highrank runs`: list the runs in a folder."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from highrank.cli.console import out, print_json, print_table, say
from highrank.cli.options import AsJson
from highrank.errors import UserError

if TYPE_CHECKING:
    from highrank.runs.listing import RunRow


def runs(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to look.")] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """List the runs in a folder with their recipe, corpus, epoch and perplexities."""
    from highrank.runs.listing import list_runs

    if folder.is_file() or (not folder.exists() and folder != Path("runs")):
        raise UserError(f"{folder} is not a folder: name one that contains runs.")
    rows = list_runs(folder)
    if as_json:
        print_json([dataclasses.asdict(row) for row in rows])
    elif rows:
        _print_rows(rows)
    else:
        say(f"There are no runs in {folder}. Start one with 'highrank train pydoc-mos'.")


def _print_rows(rows: "list[RunRow]") -> None:
    from highrank.evaluation.score import format_score

    table = Table(box=None, padding=(0, 1, 0, 0))  # without borders, it fits 80 columns
    for name in ("run", "recipe", "corpus", "epoch", "best\nvalid", "valid", "test", "state"):
        justify: Literal["left", "right"] = "left" if name in ("run", "recipe", "corpus", "state") else "right"
        table.add_column(name, justify=justify)
    for row in rows:
        numbers = [row.best_valid_ppl, row.valid_ppl, row.test_ppl]
        cells = ["-" if number is None else format_score(number, row.level) for number in numbers]
        corpus = Path(row.corpus).name
        table.add_row(row.run, row.recipe, corpus, str(row.epoch or "-"), *cells, row.state)
    print_table(table)
    out.print(
        "\nbest valid: in training, several parts of the text at once; valid, test: at the end, the text as a whole."
    )
