"""`highrank runs`: list the runs in a folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table
from rich.text import Text

from highrank.cli.console import out, print_json, say
from highrank.cli.options import AsJson
from highrank.errors import UserError

if TYPE_CHECKING:
    from highrank.runs.folder import Run


def runs(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to look.")] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """List the runs in a folder with their recipe, epoch and perplexities."""
    from highrank.runs.folder import Run

    if folder.is_file() or (not folder.exists() and folder != Path("runs")):
        raise UserError(f"{folder} is not a folder: name one that contains runs.")
    found = [Run(path.parent) for path in sorted(folder.glob("**/run.json"))]
    rows = [_row(run) for run in found if not run.is_export()]
    if as_json:
        print_json(rows)
    elif rows:
        _print_table(rows)
    else:
        say(f"There are no runs in {folder}. Start one with 'highrank train pydoc-mos'.")


def _row(run: "Run") -> dict[str, Any]:
    """Return what the list shows of a run; for a damaged run, what could be read of it."""
    from highrank.evaluation.perplexity import perplexity
    from highrank.runs import checkpoint as checkpoints
    from highrank.runs.record import read_summary

    row: dict[str, Any] = {"run": str(run.folder), "recipe": "?", "epoch": None, "best_valid_ppl": None}
    row |= {"valid_ppl": None, "test_ppl": None, "level": "word", "state": ""}
    try:
        row["recipe"] = run.recipe().name
        row["level"] = run.info().corpus_level
        if run.has_checkpoint():
            state = checkpoints.read(run.folder).state
            row["epoch"] = state.epoch
            row["state"] = "finished" if state.finished else "can resume"
            if state.best_valid is not None:
                row["best_valid_ppl"] = perplexity(state.best_valid)
        summary = read_summary(run)
        if summary and summary.epochs == row["epoch"]:  # a killed run keeps the summary of its previous pause
            row["valid_ppl"] = summary.valid_ppl
            row["test_ppl"] = summary.test_ppl
    except UserError as error:
        row["state"] = f"damaged: {error}"
    return row


def _print_table(rows: list[dict[str, Any]]) -> None:
    from highrank.evaluation.perplexity import format_score

    table = Table(box=None, padding=(0, 2, 0, 0))  # without borders, it fits 80 columns
    for name in ("run", "recipe", "epoch", "best\nvalid", "valid", "test", "state"):
        justify: Literal["left", "right"] = "left" if name in ("run", "recipe", "state") else "right"
        table.add_column(name, justify=justify, overflow="fold")
    for row in rows:
        numbers = [row["best_valid_ppl"], row["valid_ppl"], row["test_ppl"]]
        cells = ["-" if number is None else format_score(number, row["level"]) for number in numbers]
        # Text, because rich would read brackets in a folder's name as markup.
        table.add_row(*map(Text, [row["run"], row["recipe"], str(row["epoch"] or "-"), *cells, row["state"]]))
    out.print(table)
    out.print("\nbest valid: during training, in columns; valid, test: the best weights over the whole stream.")
