"""evaluations.jsonl of a run folder, and records with dynamic evaluation and the cache.

These evaluations take minutes to hours, so `complete_record` appends a line to evaluations.jsonl for each finished
split. A result is reused if these lines or the earlier record have it for the current weights; otherwise it is
computed. A tuned result is computed again if it was tuned on another number of tokens.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from highrank.data.corpus import Corpus
from highrank.errors import UserError
from highrank.evaluation.tune import OnPoint, Settings, Tuning
from highrank.files import write_text
from highrank.progress import OnStage, no_stages
from highrank.runs import checkpoint as checkpoints
from highrank.runs.adaptation import PUBLISHED, AdaptiveEvaluation
from highrank.runs.folder import Run
from highrank.runs.provenance import Provenance, provenance
from highrank.runs.record import Adaptation, RunRecord, current_summary, read_record
from highrank.runs.text_model import load
from highrank.schema import from_json, to_json

RESULTS = ("dynamic", "dynamic_tuned", "cache", "cache_tuned")  # fields of RunRecord
MAX_LISTED_POINTS = 20  # points of a search that a record lists; the cache tries thousands


@dataclass(frozen=True)
class Line:
    """The format of a line of evaluations.jsonl: the perplexity of one split."""

    updates: int | None  # of the run; lines with another number belong to earlier weights
    result: str  # one of RESULTS
    split: str
    settings: Settings
    perplexity: float
    seconds: float
    provenance: Provenance
    tuning: Tuning | None  # the search that chose the settings


class EvaluationLog:
    """The lines of evaluations.jsonl for the current weights of a run, the last one per result and split."""

    def __init__(self, run: Run, updates: int | None, device: torch.device) -> None:
        self.path = run.folder / "evaluations.jsonl"
        self.updates = updates
        self.device = device
        try:
            lines = [from_json(Line, json.loads(line)) for line in self._read().splitlines()]
        except ValueError as error:
            raise UserError(f"{self.path} is damaged ({error}): delete it to compute the results again.") from None
        self.lines = {(line.result, line.split): line for line in lines if line.updates == updates}

    def evaluate(
        self, result: str, method: AdaptiveEvaluation, settings: Settings, tuning: Tuning | None = None
    ) -> None:
        """Evaluate valid and test, and append a line for each. Skip a split that has a line with the same `tuning`."""
        for split in ("valid", "test"):
            line = self.lines.get((result, split))
            if line is None or line.tuning != tuning:
                start = time.perf_counter()
                ppl = method.evaluate(split, settings, f"{split}, {result.replace('_', ', ')}").perplexity
                seconds = time.perf_counter() - start
                machine = Provenance(**provenance(self.device))
                line = Line(self.updates, result, split, settings, ppl, seconds, machine, tuning)
                # Read again: meanwhile another process may have added other results.
                write_text(self.path, self._read() + json.dumps(to_json(line)) + "\n")
                self.lines[result, split] = line

    def _read(self) -> str:
        return self.path.read_text(encoding="utf-8") if self.path.exists() else ""

    def add_to(self, record: RunRecord) -> RunRecord:
        """Return `record` with every result of which both splits are finished."""
        results: dict[str, Any] = {}
        for result in RESULTS:
            valid = self.lines.get((result, "valid"))
            test = self.lines.get((result, "test"))
            if valid is not None and test is not None and valid.tuning == test.tuning:
                seconds = valid.seconds + test.seconds
                results[result] = Adaptation(
                    test.settings, valid.perplexity, test.perplexity, seconds, test.provenance, test.tuning
                )
        return replace(record, **results)


def complete_record(
    run: Run,
    corpus: Corpus,
    device: torch.device,
    methods: Sequence[str],  # "dynamic", "cache"
    *,
    tune: bool = False,
    tune_tokens: int | None = None,  # of validation; None: all
    earlier: RunRecord | None = None,  # the record that is replaced
    on_stage: OnStage = no_stages,
    on_point: OnPoint | None = None,
) -> RunRecord:
    """Return the record of a run's current weights, after computing those results of `methods` that are missing.

    Each method uses its published settings; `tune` adds a second result with settings found on validation.
    """
    summary = current_summary(run, corpus, device, on_stage)
    log = EvaluationLog(run, summary.updates, device)
    record = log.add_to(earlier if earlier is not None and earlier.updates == summary.updates else summary)
    model = load(run.folder, device).model
    longest = len(corpus.splits["valid"]) - 1
    tokens = min(tune_tokens or longest, longest)
    for name in methods:
        tuned_name = f"{name}_tuned"
        lacks_published = getattr(record, name) is None
        lacks_tuned = tune and _tuning_on(getattr(record, tuned_name), tokens) is None
        if not lacks_published and not lacks_tuned:
            continue
        published = PUBLISHED[name](corpus.name)
        method = AdaptiveEvaluation(model, corpus, published, on_stage)
        if lacks_published:
            log.evaluate(name, method, published)
        if lacks_tuned:
            tuning = _tuning_on(log.lines.get((tuned_name, "valid")), tokens)
            if tuning is None:
                tuning = method.tune(tokens, on_point)
                tuning = replace(tuning, tried=tuning.tried[:MAX_LISTED_POINTS])
            log.evaluate(tuned_name, method, tuning.best, tuning)
    return log.add_to(record)


def _tuning_on(result: Adaptation | Line | None, tokens: int) -> Tuning | None:
    """Return the tuning of a result if it used `tokens` tokens, else None."""
    tuning = None if result is None else result.tuning
    return tuning if tuning is not None and tuning.tokens == tokens else None


def read_earlier(run: Run, path: Path) -> RunRecord:
    """Read the record that is replaced at `path`.

    Raise a UserError if it belongs to another run, or to a later state of this one.
    """
    record = read_record(path)
    same_run = record.provenance.started == run.info().provenance.started
    if not same_run or (record.updates or 0) > checkpoints.read(run.folder).state.step:
        raise UserError(f"{path} is the record of another run, or of a later state of this one: choose another file.")
    return record
