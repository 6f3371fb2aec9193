"""The training loop: a run from its recipe or its last checkpoint to an end or a pause, saved so that it can go on.

What a window, an epoch and a stage are is in `stages.py`; here is when the loss is read, a line written, the run saved.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from highrank.data.corpus import Corpus
from highrank.errors import UserError
from highrank.evaluation.perplexity import perplexity
from highrank.recipes.recipe import Recipe
from highrank.runs import checkpoint as checkpoints
from highrank.runs.folder import Run
from highrank.runs.metrics import Metrics
from highrank.runs.provenance import provenance
from highrank.training.callbacks import Listener
from highrank.training.clock import Clock
from highrank.training.stages import Training
from highrank.training.step import Precision

READ_EVERY_WINDOWS = 50
EPOCH_CHECKPOINT_SECONDS = 20.0

Pause = Literal["max-epochs", "time-budget", "interrupted"]
Outcome = Literal["finished"] | Pause


def train(
    recipe: Recipe,
    corpus: Corpus,
    run: Run,
    device: torch.device,
    *,
    resume: bool = False,
    finetune: bool = False,
    data_dir: Path | None = None,
    max_epochs: int | None = None,
    time_budget: float | None = None,
    checkpoint_every: float = 120.0,
    graphs: bool = True,
    made_by: str = "train",
    listener: Listener | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Train until the recipe's rules end the run, `max_epochs` in all, `time_budget` seconds from now, or a stop.

    `should_stop` is asked between windows; whatever the reason, the run is saved and can be resumed, on a CPU bit for
    bit. `finetune` ends the stage at hand first, as whoever runs the paper's finetuning script does.
    """
    if resume:
        run.refuse_export()
    else:
        precision = Precision.name_of(recipe.train.precision, device)
        recipe = replace(recipe, train=replace(recipe.train, precision=precision))
    training = Training(recipe, corpus, run, device, graphs=graphs)
    if not resume:
        run.create(recipe, corpus, device, data_dir, made_by)
    with run.locked():
        if resume:
            _restore(training)
        progress = training.progress
        start = {"epoch": progress.epoch, "seconds": progress.seconds, "time_budget": time_budget, "outcome": None}
        progress.pieces.append(start | provenance(device))
        metrics = Metrics(run.folder, progress.metrics_bytes, progress.step)
        clock = Clock(checkpoint_every, time_budget)
        try:
            loop = _Loop(training, metrics, clock, listener or Listener(), should_stop)
            if finetune:
                loop.finetune()
            return loop.run(max_epochs)
        finally:
            metrics.close()


def _restore(training: Training) -> None:
    run = training.run
    if not run.checkpoint_file.exists():
        if run.model_file.exists():
            raise UserError(f"{run.folder} has lost its checkpoint.json: restore it, or start a new run.")
        return  # killed before its first checkpoint: from the beginning
    saved = checkpoints.load(run.folder)
    try:
        training.restore(saved)
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        raise checkpoints.damaged(run.folder, error) from None


@dataclass
class _Loop:
    """One start of a run: until it ends or pauses."""

    training: Training
    metrics: Metrics
    clock: Clock
    listener: Listener
    should_stop: Callable[[], bool]

    def run(self, max_epochs: int | None) -> Outcome:
        if not self.training.run.checkpoint_file.exists():
            self._save()  # from here on, a run without a checkpoint is a damaged one
        progress = self.training.progress
        before = progress.step
        outcome = self._epochs(max_epochs)
        if progress.step > before:
            progress.pieces[-1]["outcome"] = outcome
        else:
            progress.pieces.pop()  # nothing was trained, so the run has no such piece
        self._save()
        return outcome

    def finetune(self) -> None:
        stage = self.training.progress.stage
        self.listener.message("evaluating the best weights so far on valid and test ...")
        self.training.finetune()
        self._tell_end_of(stage)
        self._save()

    def _tell_end_of(self, stage: int) -> None:
        best = self.training.progress.best_epoch
        self.listener.message(f"stage {stage} is over: finetuning from the weights of epoch {best}")

    def _epochs(self, max_epochs: int | None) -> Outcome:
        progress = self.training.progress
        while not progress.finished:
            if max_epochs is not None and progress.epoch >= max_epochs:
                return "max-epochs"
            pause = self._epoch()
            if pause is None and not progress.finished:
                pause = self._reason_to_pause()
            if pause is not None:
                return pause
        return "finished"

    def _epoch(self) -> Pause | None:
        """The rest of one epoch, or as much of it as there is time for."""
        training, progress, last = self.training, self.training.progress, len(self.training.stream) - 1
        self.listener.epoch_started(progress.epoch + 1, last, progress.row)
        began, tokens = time.perf_counter(), 0
        # Reading a loss waits for the device: a CPU has nothing to wait for, a GPU is asked now and then.
        every = 1 if training.device.type == "cpu" else READ_EVERY_WINDOWS
        for i, window in enumerate(training.windows()):
            training.train_window(window)
            tokens += window.targets.numel()
            if i % every == 0:
                loss = training.read_totals()
                self.listener.window_done(progress.row, tokens, loss)
                if self.clock.metrics_due():
                    record = {"kind": "train", "step": progress.step, "epoch": progress.epoch, "nll": loss}
                    self.metrics.write(record, progress.step)
            if progress.row >= last:
                break  # the epoch ends below; its state is saved there
            if pause := self._reason_to_pause():
                return pause
            if self.clock.save_due():
                self._save()
        training.read_totals()
        self._end_epoch(tokens / max(time.perf_counter() - began, 1e-9))
        return None

    def _end_epoch(self, tokens_per_second: float) -> None:
        """Validation, and what follows from it."""
        training, progress = self.training, self.training.progress
        train_nll = progress.loss_sum / max(1, progress.loss_tokens)
        averaged, stage = training.optimizer.averaging, progress.stage
        valid = training.validate()
        averages = training.optimizer.about()  # the end of a stage makes new ones
        self.clock.count(progress)
        training.end_epoch(valid)
        self.clock.count(progress)
        record: dict[str, Any] = {
            "kind": "epoch",
            "epoch": progress.epoch,
            "stage": "train" if stage == 0 else f"finetune-{stage}",
            "averaged": averaged,
            "step": progress.step,
            "train_nll": train_nll,
            "train_ppl": perplexity(train_nll),
            "valid_nll": valid,
            "valid_ppl": perplexity(valid),
            "best_valid_ppl": perplexity(progress.best_valid if progress.best_valid is not None else math.inf),
            "best_epoch": progress.best_epoch,
            "skipped": progress.skipped,
            "tokens_per_second": tokens_per_second,
            "seconds": progress.seconds,
            **averages,
        }
        self.metrics.write(record, progress.step)
        self.listener.epoch_done(record)
        if progress.stage != stage:
            self._tell_end_of(stage)
        elif training.optimizer.averaging and not averaged:
            self.listener.message("validation stopped improving: averaging the weights from now on")
        # Where epochs take seconds, writing hundreds of megabytes after each would cost a tenth of the time.
        if self.clock.save_due(EPOCH_CHECKPOINT_SECONDS):
            self._save()

    def _reason_to_pause(self) -> Pause | None:
        if self.should_stop():
            return "interrupted"
        return "time-budget" if self.clock.time_is_up() else None

    def _save(self) -> None:
        training, progress = self.training, self.training.progress
        training.read_totals()
        self.clock.count(progress)
        progress.metrics_bytes = self.metrics.size()
        training.save()
        self.clock.saved()
