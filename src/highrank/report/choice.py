"""Which record stands for a cell, and what is said of where it comes from.

Among the runs of a recipe's own model on its own text (settings of training may differ, and are named), the one with
the best validation perplexity. Test perplexity chooses nothing.
"""

from collections.abc import Callable, Iterable
from typing import Any

from highrank.report.records import Record, machine_name
from highrank.report.results import Cell, Origin

Scores = dict[str, Any]  # valid_ppl, test_ppl, and what they cost
STATES = {
    "trained": "without finetuning",
    "finetuned": "finetuned",
    "cache": "+ cache",
    "dynamic": "+ dynamic evaluation",
}


def of_state(state: str) -> Callable[[Record], Scores | None]:
    """What a record says of its model trained, finetuned, with a cache or evaluated dynamically."""

    def scores(record: Record) -> Scores | None:
        data = record.data
        if state == "trained":
            return record.stage(0)
        if state == "finetuned":
            return data if record.finetuned else None
        parts = [data.get(key) or {} for key in (state, f"{state}_tuned")]
        found = [part for part in parts if part.get("valid_ppl") and part.get("test_ppl")]  # the others were cut off
        return min(found, key=lambda one: one["valid_ppl"], default=None)

    return scores


def runs_of(recipe: str, records: Iterable[Record]) -> list[Record]:
    return [record for record in records if record.recipe == recipe and record.same_model]


def best(records: Iterable[Record], score: Callable[[Record], Scores | None]) -> tuple[Record, Scores] | None:
    """The record that does best on validation, with its scores."""
    found = [(record, scores) for record in records if (scores := score(record)) is not None]
    return min(found, key=lambda pair: pair[1]["valid_ppl"], default=None)


def cell(found: tuple[Record, Scores] | None, printed: tuple[float, ...] | None = None, source: str = "") -> Cell:
    if found is None:
        return Cell(printed, source=source)
    record, scores = found
    return Cell(printed, (scores["valid_ppl"], scores["test_ppl"]), origin(record, scores), source)


def origin(record: Record, scores: Scores) -> Origin:
    data = record.data
    trained = scores if "epochs" in scores else data  # adapting has a time of its own; ours is that of training
    return Origin(
        path=record.path,
        commit=record.commit(trained["epochs"]),
        machine=record.machine(trained["epochs"]),
        seed=data["seed"],
        epochs=trained["epochs"],
        seconds=trained["seconds"],
        about=_changes(record, scores, len(record.pieces(trained["epochs"]))),
        adapted=None if trained is scores else _adapted(scores),
    )


def _adapted(scores: Scores) -> dict[str, Any]:
    """Where dynamic evaluation or the cache was computed: later than training, perhaps by other code elsewhere."""
    where = scores.get("provenance") or {}
    return {
        "commit": where.get("commit"),
        "machine": machine_name(where.get("machine")) or None,
        "seconds": scores.get("seconds"),
        "settings": scores.get("settings"),
    }


def _changes(record: Record, scores: Scores, pieces: int) -> str:
    """with train.batch_size=16, in 3 pieces, settings tuned on valid"""
    parts = [f"{key}={value}" for key, value in record.overrides.items()]
    words = [f"with {' '.join(parts)}"] if parts else []
    words += [f"in {pieces} pieces"] if pieces > 1 else []
    words += ["settings tuned on valid"] if scores.get("tuning") is not None else []
    return ", ".join(words)


def trained_for(found: Origin | None) -> str:
    """125 epochs, 9.1 min of one H200"""
    if found is None or found.seconds is None:
        return ""
    time = f"{found.seconds / 60:.1f} min" if found.seconds < 7200 else f"{found.seconds / 3600:.1f} h"
    return f"{found.epochs} epochs, {time} of one {found.machine}" + (f"; {found.about}" if found.about else "")
