"""The table of all recorded runs, whatever their recipe and corpus: the first one of a report."""

from pathlib import Path

from highrank.evaluation.score import format_score
from highrank.report.records import RecordedRun
from highrank.report.table import Cell, Column, Table, keep_together


def runs_table(runs: list[RecordedRun]) -> Table:
    """Return one row per record, the lowest validation score of each corpus first."""
    rows = []
    for run in sorted(runs, key=lambda run: (run.record.settings["data"]["corpus"], run.record.valid_ppl)):
        record = run.record
        scores = [format_score(ppl, record.level) for ppl in (record.valid_ppl, record.test_ppl)]
        rows.append(
            [
                Cell(code=run.path.removeprefix("runs/").removesuffix(".json")),
                Cell(code=record.recipe),
                Cell(Path(record.settings["data"]["corpus"]).name),  # of own text, the folder
                Cell(keep_together(" / ".join(scores)), record=run.path),
                Cell(f"{record.parameters:,}"),
                Cell(run.origin(record.epochs, record.seconds).training()),
            ]
        )
    left = [Column(name, "left") for name in ("run", "recipe", "corpus")]
    # The page hides the last column first where a window is too narrow.
    return Table([*left, Column("valid / test"), Column("parameters"), Column("trained for", "left")], rows)
