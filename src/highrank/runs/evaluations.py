"""Dynamic evaluation and the cache for records, saved as JSON lines in the run folder.

Evaluating a split with either method takes minutes to hours. Each finished split and each finished search for settings
is appended to evaluations.jsonl, so an interruption loses at most one of them, and the next `complete_record` computes
only what is missing. A line counts only for the state of the run that it was computed from (`updates`). Delete the file
to compute everything again.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from highrank.data.corpus import Corpus
from highrank.errors import UserError
from highrank.evaluation.tune import OnPoint, Tuning
from highrank.progress import OnStage, no_stages
from highrank.recipes.recipe import CacheSettings, DynamicSettings
from highrank.runs import checkpoint as checkpoints
from highrank.runs.adaptation import CacheEvaluation, DynamicEvaluation
from highrank.runs.folder import Run, load
from highrank.runs.provenance import Provenance, provenance
from highrank.runs.record import Adaptation, RunRecord, current_summary, read_record
from highrank.schema import from_json, to_json

METHODS: dict[str, Any] = {"dynamic": DynamicEvaluation, "cache": CacheEvaluation}
MOST_TRIED = 20  # points of a search that a record lists; the cache tries thousands


@dataclass(frozen=True, kw_only=True)
class SplitLine:
    """The perplexity of one split."""

    kind: Literal["split"] = "split"
    method: str  # a key of METHODS
    tuned: bool
    split: str
    settings: DynamicSettings | CacheSettings
    perplexity: float
    seconds: float
    updates: int  # of the run when it was evaluated
    provenance: Provenance


@dataclass(frozen=True, kw_only=True)
class TuningLine:
    """The result of one search for settings."""

    kind: Literal["tuning"] = "tuning"
    method: str
    tuning: Tuning
    updates: int
    provenance: Provenance


class EvaluationLog:
    """The lines of evaluations.jsonl that belong to the current state of a run."""

    def __init__(self, run: Run, updates: int) -> None:
        self.path = run.folder / "evaluations.jsonl"
        self.updates = updates
        lines = [line for line in _read_lines(self.path) if line.updates == updates]
        self.splits = [line for line in lines if isinstance(line, SplitLine)]
        self.tunings = [line for line in lines if isinstance(line, TuningLine)]

    def tune(self, name: str, method: Any, ids: Tensor, device: torch.device, on_point: OnPoint | None) -> Any:
        """Return the best settings on `ids`, from the log if it has a search on as many tokens."""
        for line in self.tunings:
            if line.method == name and line.tuning.tokens == len(ids) - 1:
                return line.tuning.best
        tuning = method.tune(ids, method.published, on_point).summary(MOST_TRIED)
        line = TuningLine(method=name, tuning=tuning, updates=self.updates, provenance=Provenance(**provenance(device)))
        self.tunings.append(line)
        self._append(line)
        return tuning.best

    def evaluate(
        self, name: str, method: Any, settings: Any, splits: dict[str, Tensor], device: torch.device, *, tuned: bool
    ) -> None:
        """Evaluate validation and test, unless they are in the log."""
        for split in ("valid", "test"):
            key = (name, tuned, split, settings)
            if any((line.method, line.tuned, line.split, line.settings) == key for line in self.splits):
                continue
            method.prepare(settings)
            start = time.perf_counter()
            result = method.evaluate(splits[split], settings, f"{split}, {name}{', tuned' * tuned}")
            line = SplitLine(
                method=name,
                tuned=tuned,
                split=split,
                settings=settings,
                perplexity=result.perplexity,
                seconds=time.perf_counter() - start,
                updates=self.updates,
                provenance=Provenance(**provenance(device)),
            )
            self.splits.append(line)
            self._append(line)

    def _append(self, line: SplitLine | TuningLine) -> None:
        """Append a line to the file."""
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(to_json(line)) + "\n")
        except OSError as error:
            raise UserError(f"cannot write {self.path}: {error.strerror or error}.") from error

    def adaptation(self, name: str, *, tuned: bool) -> Adaptation | None:
        """Return the last result of a method for which both splits are finished."""
        splits = [line for line in self.splits if (line.method, line.tuned) == (name, tuned)]
        test = next((line for line in reversed(splits) if line.split == "test"), None)
        if test is None:
            return None
        valid = next(line for line in splits if line.split == "valid" and line.settings == test.settings)
        searches = [line.tuning for line in self.tunings if line.method == name and line.tuning.best == test.settings]
        return Adaptation(
            settings=test.settings,
            valid_ppl=valid.perplexity,
            test_ppl=test.perplexity,
            seconds=valid.seconds + test.seconds,
            provenance=test.provenance,
            tuning=searches[-1] if tuned else None,
        )


def _read_lines(path: Path) -> list[SplitLine | TuningLine]:
    if not path.exists():
        return []
    lines: list[SplitLine | TuningLine] = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            data = json.loads(text)
            kind: type[SplitLine] | type[TuningLine] = TuningLine if data["kind"] == "tuning" else SplitLine
            lines.append(from_json(kind, data))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"line {number} of {path} is damaged ({error}): delete that line.") from None
    return lines


def complete_record(
    run: Run,
    corpus: Corpus,
    device: torch.device,
    methods: Sequence[str] = (),  # keys of METHODS
    *,
    tune: bool = False,
    tune_tokens: int | None = None,  # of validation; None: all
    earlier: RunRecord | None = None,
    on_stage: OnStage = no_stages,
    on_point: OnPoint | None = None,
) -> RunRecord:
    """Return the record of a run's current state, after computing those results of `methods` that are missing.

    Each method uses its published settings; `tune` adds a second result with settings found on validation. Results in
    `earlier`, a record of the same state, are not missing.
    """
    summary = current_summary(run, corpus, device, on_stage)
    assert summary.updates is not None
    log = EvaluationLog(run, summary.updates)
    finished = _assemble(summary, log, earlier)
    model = load(run.folder, device).model
    for name in methods:
        method = METHODS[name](model, corpus, on_stage)
        published: Adaptation | None = getattr(finished, name)
        if published is None or published.settings != method.published:
            log.evaluate(name, method, method.published, corpus.splits, device, tuned=False)
        if tune:
            ids = corpus.splits["valid"][: None if tune_tokens is None else tune_tokens + 1]
            tuned: Adaptation | None = getattr(finished, f"{name}_tuned")
            if tuned is None or tuned.tuning is None or tuned.tuning.tokens != len(ids) - 1:
                best = log.tune(name, method, ids, device, on_point)
                log.evaluate(name, method, best, corpus.splits, device, tuned=True)
    return _assemble(summary, log, earlier)


def _assemble(summary: RunRecord, log: EvaluationLog, earlier: RunRecord | None) -> RunRecord:
    """Add the results in the log to a summary, and those in `earlier` that the log does not have."""
    results: dict[str, Any] = {}
    for name in METHODS:
        for key, tuned in ((name, False), (f"{name}_tuned", True)):
            results[key] = log.adaptation(name, tuned=tuned) or getattr(earlier, key, None)
    return replace(summary, **results)


def read_earlier(run: Run, path: Path) -> RunRecord | None:
    """Read the record that a new one is to replace at `path`; None if the run has been trained further since.

    Raise a UserError if it belongs to another run, or to a copy of this run that was trained further elsewhere: this
    run could not compute its results again.
    """
    record = read_record(path)
    updates = checkpoints.read(run.folder).state.step
    if record.provenance.started != run.info().provenance.started:
        raise UserError(f"{path} is the record of another run: choose another file.")
    if record.updates is not None and record.updates > updates:
        raise UserError(f"{path} is a later record of this run, after {record.epochs} epochs: choose another file.")
    return record if record.updates == updates else None
