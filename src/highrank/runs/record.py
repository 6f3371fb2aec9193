"""Run -> record: what a run came to, on one page of JSON that can stand without its weights.

`summarize` writes summary.json into the run's folder whenever training ends or pauses. `record` adds what needs the
weights, while they are at hand: dynamic evaluation and the cache (`adapted.py`). Made again of the same state, a record
keeps what it has and gains what is new. `highrank report` reads records and nothing else.

    valid_ppl, test_ppl    of the best weights on validation, in float32, one stream
    stages                 the same at the end of training (stage 0) and of each finetuning stage
    overrides              where the run's settings differ from the recipe of that name
    pieces                 the starts of a run that was resumed or carried elsewhere: machine, commit, time, and in what
                           dtype it was carried on to the next (`exported`), whole or its averages only
    seconds, epochs        in all, over every piece
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from highrank.data.corpus import Corpus
from highrank.errors import UserError
from highrank.evaluation.tune import OnPoint, Tuning
from highrank.files import read_json, write_json
from highrank.recipes import overrides
from highrank.recipes.recipe import CacheSettings, DynamicSettings
from highrank.runs import checkpoint as checkpoints
from highrank.runs.adapted import adapted
from highrank.runs.checkpoint import CheckpointFile, Piece
from highrank.runs.folder import Run, load
from highrank.runs.part import Watch, perplexities, unwatched
from highrank.runs.provenance import Provenance
from highrank.schema import SchemaError, from_json, to_json
from highrank.training.state import StageResult, TrainingState

CURVE = ("epoch", "seconds", "train_ppl", "valid_ppl")


@dataclass(frozen=True)
class Curve:
    """Training and validation perplexity per epoch, rounded for drawing; None where the loss was not finite."""

    epoch: list[int]
    seconds: list[float]
    train_ppl: list[float | None]
    valid_ppl: list[float | None]


@dataclass(frozen=True)
class Adaptation:
    """Perplexities with dynamic evaluation or with the cache."""

    settings: DynamicSettings | CacheSettings
    valid_ppl: float
    test_ppl: float
    seconds: float | None
    provenance: Provenance | None
    tuning: Tuning | None = None  # the search that chose the settings; None for the published ones


@dataclass(frozen=True)
class RunRecord:
    """The results of one run: the format of summary.json and of results/runs/*.json."""

    recipe: str
    overrides: dict[str, Any]  # settings that differ from the recipe of that name
    outcome: str
    epochs: int
    updates: int | None
    best_epoch: int
    stage: int
    stages: list[StageResult]
    parameters: int
    valid_ppl: float  # of the best weights, in float32
    test_ppl: float
    eval_batch_size: int  # columns in which the splits were read
    seconds: float
    pieces: list[Piece]
    skipped: int  # updates left out because the loss or its gradient was not finite
    seed: int
    provenance: Provenance
    settings: dict[str, Any]  # the resolved recipe
    averaged_from: int | None  # the first epoch with averaged weights
    curve: Curve
    dynamic: Adaptation | None = None
    dynamic_tuned: Adaptation | None = None
    cache: Adaptation | None = None
    cache_tuned: Adaptation | None = None


def read_record(path: Path) -> RunRecord:
    """Read and check a record or a summary."""
    try:
        return from_json(RunRecord, read_json(path, "run record"))
    except SchemaError as error:
        raise UserError(f"{path} is not a run record: {error}. Recreate it with 'highrank record'.") from None


def write_record(path: Path, record: RunRecord) -> None:
    """Write a record or a summary."""
    write_json(path, to_json(record))


def summarize(
    run: Run, corpus: Corpus, device: torch.device, outcome: str, batch_size: int = 1, watch: Watch = unwatched
) -> dict[str, Any]:
    """Perplexities of the run's best weights in float32, with everything a record needs, written to summary.json."""
    info = run.info()
    checkpoint = checkpoints.read(run.folder)
    state = checkpoint.state
    model = load(run.folder, device).model
    results = perplexities(model, corpus.splits, batch_size, watch)
    epochs = run.epochs(state.epoch)
    summary = {
        "recipe": info.recipe["name"],
        "overrides": overrides(info.recipe),
        "outcome": outcome,
        "epochs": state.epoch,
        "updates": state.step,
        "best_epoch": state.best_epoch,
        "stage": state.stage,
        "stages": to_json([*state.stages, _stage_result(state, results)]),
        "parameters": model.n_parameters(),
        **results,
        "eval_batch_size": batch_size,
        "seconds": state.seconds,
        "pieces": to_json(checkpoint.pieces),
        "skipped": state.skipped,
        "seed": info.recipe["train"]["seed"],
        "provenance": to_json(info.provenance),
        "settings": info.recipe,
        "averaged_from": next((metrics.epoch for metrics in epochs if metrics.averaged), None),
        "curve": {key: [_short(getattr(metrics, key)) for metrics in epochs] for key in CURVE},
    }
    write_json(run.summary_file, summary)
    return summary


def record(
    run: Run,
    corpus: Corpus,
    device: torch.device,
    *,
    dynamic: bool = False,
    cache: bool = False,
    tune: bool = False,
    tune_tokens: int | None = None,
    watch: Watch = unwatched,
    on_point: OnPoint | None = None,
    known: dict[str, Any] | None = None,
    keep: Callable[[dict[str, Any]], object] = lambda made: None,
) -> dict[str, Any]:
    """The run's summary, made now unless the one at hand is of this very state, and how it does when it adapts.

    `dynamic` and `cache` use the published settings; `tune` adds the best ones found on validation, or on its first
    `tune_tokens` tokens, beside them, which are then not tried again if they are there. `known` is an earlier record of
    the run, added to if nothing was trained since. `keep` is handed the record as it grows, so that who is cut off in
    a long evaluation keeps those before it, and goes on from there (`part.py`).
    """
    checkpoint = checkpoints.read(run.folder)
    made = next((told for told in (known, run.summary()) if told and _tells_of(told, checkpoint.state)), None)
    if made is None:
        made = summarize(run, corpus, device, _outcome(checkpoint), watch=watch)
    keep(made)
    for name, part in adapted(
        run, corpus, device, dynamic=dynamic, cache=cache, tune=tune, tune_tokens=tune_tokens, known=made,
        watch=watch, on_point=on_point,
    ):  # fmt: skip
        made = {**made, name: part}
        keep(made)
    return made


def _tells_of(summary: dict[str, Any], progress: TrainingState) -> bool:
    """Whether a summary or a record is of this very state, over the whole stream; the oldest know their epoch only."""
    same = summary["updates"] == progress.step if "updates" in summary else summary.get("epochs") == progress.epoch
    return bool(same and summary.get("eval_batch_size") == 1)


def record_of(run: Run, data: Any) -> bool:
    """Whether `data` is a record of this run, be it of an earlier state or made where it was carried from."""
    told = data.get("provenance") if isinstance(data, dict) else None
    return isinstance(told, dict) and told.get("started") == run.info().provenance.started


def _stage_result(state: TrainingState, results: dict[str, float]) -> StageResult:
    """Return the result of the current stage so far."""
    valid_ppl, test_ppl = results["valid_ppl"], results["test_ppl"]
    return StageResult(state.stage, state.epoch, state.best_epoch, state.seconds, valid_ppl, test_ppl)


def _outcome(checkpoint: CheckpointFile) -> str:
    """Why training stopped last; a run that was killed, or comes from an older version, was cut off."""
    if checkpoint.state.finished:
        return "finished"
    return (checkpoint.pieces[-1].outcome if checkpoint.pieces else None) or "cut off"


def _short(value: Any) -> Any:
    """A curve is drawn, not computed with: four decimals keep a record readable."""
    return round(value, 4) if isinstance(value, float) else value
