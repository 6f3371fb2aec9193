"""Run records: the results of a run as one JSON file that needs no weights.

`summarize` writes summary.json into the run folder whenever training ends or pauses. `highrank record` adds dynamic
evaluation and the cache (`evaluations.py`) and writes records/runs/*.json, which `highrank report` reads.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from highrank.data.catalog import Level
from highrank.data.corpus import Corpus
from highrank.data.dialog import DialogCorpus
from highrank.errors import UserError
from highrank.evaluation.perplexity import evaluate
from highrank.evaluation.tune import Tuning
from highrank.files import write_json
from highrank.progress import OnStage, no_stages
from highrank.recipes.recipe import CacheSettings, DynamicSettings
from highrank.runs import checkpoint as checkpoints
from highrank.runs.checkpoint import Piece
from highrank.runs.dialog import DialogScores, dialog_perplexity, dialog_scores, load_dialog
from highrank.runs.folder import Run
from highrank.runs.provenance import Provenance
from highrank.runs.text_model import load
from highrank.schema import read_as, to_json
from highrank.training.state import StageResult


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
    """The results of one run: the format of summary.json and of runs/*.json in a folder of records."""

    recipe: str
    outcome: str
    epochs: int
    updates: int | None
    best_epoch: int
    stage: int
    stages: list[StageResult]
    parameters: int
    valid_ppl: float  # of the best weights, in float32; a text is read in one column
    test_ppl: float
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
    init_from: str | None = None  # the name of the run whose weights this one started with
    corpus_extent: str | None = None  # the part of a corpus that may be cut: "full", "3 of 99 training shards"
    dialog: DialogScores | None = None  # of a dialog model

    @property
    def level(self) -> Level:
        """What a token is. Dialogs consist of words."""
        return self.settings["data"].get("level", "word")


def read_record(path: Path) -> RunRecord:
    """Read and check a record or a summary."""
    return read_as(RunRecord, path, "run record", "delete it and run 'highrank record' again")


def write_record(path: Path, record: RunRecord) -> None:
    """Write a record or a summary."""
    write_json(path, to_json(record))


def read_summary(run: Run) -> RunRecord | None:
    """Read a run's summary.json; None if it is missing, in another format, or older than the last checkpoint."""
    try:
        summary = read_record(run.summary_file)
    except UserError:
        return None
    return summary if summary.updates == checkpoints.read(run.folder).state.step else None


def summarize(
    run: Run, corpus: Corpus | DialogCorpus, device: torch.device, outcome: str, on_stage: OnStage = no_stages
) -> RunRecord:
    """Evaluate the best weights of a run in float32 and write summary.json."""
    info = run.info()
    checkpoint = checkpoints.read(run.folder)
    state = checkpoint.state
    epochs = run.epochs(state.epoch)
    splits = ("valid", "test")
    if isinstance(corpus, DialogCorpus):
        loaded = load_dialog(run.folder, device)
        parameters = loaded.model.n_parameters()
        results = [dialog_perplexity(loaded, corpus, split, on_stage) for split in splits]
    else:
        model = load(run.folder, device).model
        parameters = model.n_parameters()
        results = [evaluate(model, corpus.ids(split), on_progress=partial(on_stage, split)) for split in splits]
    valid, test = (result.perplexity for result in results)
    last_stage = StageResult(state.stage, state.epoch, state.best_epoch, state.seconds, valid, test)
    summary = RunRecord(
        recipe=info.recipe["name"],
        outcome=outcome,
        epochs=state.epoch,
        updates=state.step,
        best_epoch=state.best_epoch,
        stage=state.stage,
        stages=[*state.stages, last_stage],
        parameters=parameters,
        valid_ppl=valid,
        test_ppl=test,
        seconds=state.seconds,
        pieces=checkpoint.pieces,
        skipped=state.skipped,
        seed=info.recipe["train"]["seed"],
        provenance=info.provenance,
        settings=info.recipe,
        averaged_from=next((metrics.epoch for metrics in epochs if metrics.averaged), None),
        curve=Curve(
            epoch=[metrics.epoch for metrics in epochs],
            seconds=[round(metrics.seconds, 4) for metrics in epochs],
            train_ppl=[_rounded(metrics.train_ppl) for metrics in epochs],
            valid_ppl=[_rounded(metrics.valid_ppl) for metrics in epochs],
        ),
        init_from=None if info.init_from is None else Path(info.init_from).name,
        corpus_extent=corpus.extent,
    )
    write_record(run.summary_file, summary)
    return summary


def current_summary(
    run: Run, corpus: Corpus | DialogCorpus, device: torch.device, on_stage: OnStage = no_stages
) -> RunRecord:
    """Return the summary of a run's last checkpoint, computing it if summary.json is missing or older."""
    if (summary := read_summary(run)) is not None:
        return summary
    checkpoint = checkpoints.read(run.folder)
    outcome = checkpoint.pieces[-1].outcome if checkpoint.pieces else None
    if checkpoint.state.finished:
        outcome = "finished"
    return summarize(run, corpus, device, outcome or "killed", on_stage)  # a kill saves no outcome


def dialog_summary(run: Run, corpus: DialogCorpus, device: torch.device, on_stage: OnStage = no_stages) -> RunRecord:
    """Return the summary of a dialog run with the BLEU of its responses on test, computing it if it is missing."""
    summary = current_summary(run, corpus, device, on_stage)
    if summary.dialog is None:
        scores = dialog_scores(load_dialog(run.folder, device), corpus, "test", on_stage=on_stage)
        summary = replace(summary, dialog=scores)
        write_record(run.summary_file, summary)
    return summary


def _rounded(ppl: float) -> float | None:
    return round(ppl, 4) if math.isfinite(ppl) else None
