"""The table of all recorded runs, whatever their recipe and corpus: the first one of a report."""

from pathlib import Path

from highrank.evaluation.score import format_score
from highrank.report.perplexity import STATES, result_in_state
from highrank.report.records import RecordedRun
from highrank.report.table import Cell, Column, Table, keep_together


def runs_table(runs: list[RecordedRun]) -> Table:
    """Return one row per record, the lowest validation score of each corpus first."""
    adaptations = [
        state for state in ("dynamic", "cache") if any(result_in_state(run, state).ours is not None for run in runs)
    ]
    rows = []
    for run in sorted(runs, key=lambda run: (run.record.settings["data"]["corpus"], run.record.valid_ppl)):
        record = run.record
        adapted = [result_in_state(run, state).ours for state in adaptations]
        rows.append(
            [
                Cell(code=run.path.removeprefix("runs/").removesuffix(".json")),
                Cell(code=record.recipe),
                Cell(Path(record.settings["data"]["corpus"]).name),  # of own text, the folder
                *(_score_cell(run, ppls) for ppls in ((record.valid_ppl, record.test_ppl), *adapted)),
                Cell(f"{record.parameters:,}"),
                Cell(run.origin(record.epochs, record.seconds).training()),
            ]
        )
    left = [Column(name, "left") for name in ("run", "recipe", "corpus")]
    # The page hides the last column first where a window is too narrow.
    scores = [Column(name) for name in ("valid / test", *(STATES[state] for state in adaptations))]
    return Table([*left, *scores, Column("parameters"), Column("trained for", "left")], rows)


def _score_cell(run: RecordedRun, ppls: tuple[float, ...] | None) -> Cell:
    if ppls is None:
        return Cell()
    return Cell(keep_together(" / ".join(format_score(ppl, run.record.level) for ppl in ppls)), record=run.path)
