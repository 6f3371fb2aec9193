"""The training loop: repeat updates and epochs until the run ends or pauses.

`stages.py` defines what an update, an epoch and a stage do. The loop decides when to read the loss, report metrics,
save a checkpoint and pause.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypedDict, get_args

from highrank.evaluation.score import perplexity
from highrank.training.callbacks import Callbacks, EpochMetrics, UpdateMetrics
from highrank.training.checkpoint import Checkpoint, take_checkpoint
from highrank.training.stages import Training

READ_EVERY_UPDATES = 50  # on a GPU; reading the loss waits for the device
# Epochs may take seconds, and writing hundreds of megabytes after each would cost a tenth of the time.
EPOCH_CHECKPOINT_SECONDS = 20.0

Pause = Literal["max-epochs", "time-budget", "interrupted"]
Outcome = Literal["finished"] | Pause
Action = Literal["continue", "save", "time-budget", "interrupted"]
ACTIONS: tuple[Action, ...] = get_args(Action)  # the most urgent one last


class Timer:
    """Measures the seconds since its last restart."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def restart(self) -> float:
        """Start again from zero, and return the seconds measured until now."""
        now = time.perf_counter()
        seconds = now - self._start
        self._start = now
        return seconds


class Limits(TypedDict, total=False):
    """When training pauses, and how often it saves; the fields of `Loop` that its callers pass on."""

    max_epochs: int | None
    time_budget: float | None
    checkpoint_every: float
    should_stop: Callable[[], bool]


@dataclass
class Loop:
    """Runs `training`, reports to `callbacks`, and calls `save` to store a checkpoint."""

    training: Training
    save: Callable[[Checkpoint], object] = lambda checkpoint: None
    callbacks: Callbacks = field(default_factory=Callbacks)
    max_epochs: int | None = None  # pauses after this epoch, counted over the whole run
    time_budget: float | None = None  # seconds until the loop pauses
    checkpoint_every: float = 120.0  # seconds between checkpoints within an epoch
    should_stop: Callable[[], bool] = lambda: False  # called whenever the loss has been read; True pauses

    def __post_init__(self) -> None:
        self._since_start = Timer()
        self._since_count = Timer()
        self._since_save = Timer()

    def run(self) -> Outcome:
        """Train until the recipe's rules end the run, or until a pause. The caller saves the final checkpoint."""
        state = self.training.state
        outcome: Outcome = "finished"
        while not state.finished:
            if self.max_epochs is not None and state.epoch >= self.max_epochs:
                outcome = "max-epochs"
                break
            pause = self._run_epoch()
            if pause is not None:
                outcome = pause
                break
        self._count_seconds()
        return outcome

    def start_finetuning(self) -> None:
        """End the current stage, start the next one, and save."""
        stage = self.training.state.stage
        self.callbacks.message("evaluating the best weights so far on valid and test ...")
        self.training.start_finetuning()
        self._announce_end(stage)
        self._save()

    def _run_epoch(self) -> Pause | None:
        """Train on the rest of the epoch, and validate. Return the reason if a pause interrupts or follows it."""
        training = self.training
        state = training.state
        done, total = training.epoch_progress
        self.callbacks.epoch_started(state.epoch + 1, total, done)
        since_epoch = Timer()
        tokens_before = state.loss_tokens
        read_every = 1 if training.device.type == "cpu" else READ_EVERY_UPDATES
        for i, minibatch in enumerate(training.minibatches()):
            training.update(minibatch)
            read = i % read_every == 0
            if read:
                loss = training.read_totals()
                self._report_update(state.loss_tokens - tokens_before, loss)
            if training.epoch_is_complete:
                break
            if read and (pause := self._save_or_pause(self.checkpoint_every)):
                return pause
        training.read_totals()
        self._end_epoch((state.loss_tokens - tokens_before) / max(since_epoch.seconds(), 1e-9))
        if state.finished:
            return None
        return self._save_or_pause(min(EPOCH_CHECKPOINT_SECONDS, self.checkpoint_every))

    def _report_update(self, tokens: int, loss: float) -> None:
        state = self.training.state
        row, _ = self.training.epoch_progress
        metrics = UpdateMetrics(
            step=state.step, epoch=state.epoch, row=row, tokens=tokens, nll=loss, epoch_nll=self._epoch_loss()
        )
        self.callbacks.update_done(metrics)

    def _epoch_loss(self) -> float:
        """Return the mean loss of the epoch so far."""
        state = self.training.state
        return state.loss_sum / max(1, state.loss_tokens)

    def _end_epoch(self, tokens_per_second: float) -> None:
        """Validate, apply the rules of `Training.end_epoch`, and report."""
        training = self.training
        optimizer = training.optimizer
        state = training.state
        stage = state.stage
        train_nll = self._epoch_loss()
        was_averaging = optimizer.averaging
        annealed = state.annealed
        valid = training.validate()
        # Read before `end_epoch`, which may start new averages.
        uses_averages = optimizer.uses_averages
        average_length = optimizer.average_length
        self._count_seconds()
        training.end_epoch(valid)
        self._count_seconds()
        assert state.best_valid is not None
        metrics = EpochMetrics(
            epoch=state.epoch,
            stage="train" if stage == 0 else f"finetune-{stage}",
            averaged=uses_averages,
            average_length=average_length,
            step=state.step,
            train_nll=train_nll,
            train_ppl=perplexity(train_nll),
            valid_nll=valid,
            valid_ppl=perplexity(valid),
            best_valid_ppl=perplexity(state.best_valid),
            best_epoch=state.best_epoch,
            skipped=state.skipped,
            tokens_per_second=tokens_per_second,
            seconds=state.seconds,
        )
        self.callbacks.epoch_done(metrics)
        if state.stage != stage:
            self._announce_end(stage)
        elif optimizer.averaging and not was_averaging:
            self.callbacks.message("validation stopped improving: averaging the weights from now on")
        elif state.annealed > annealed:
            self.callbacks.message(f"validation stopped improving: the learning rate is {training.lr:g} from now on")

    def _announce_end(self, stage: int) -> None:
        best_epoch = self.training.state.best_epoch
        self.callbacks.message(f"stage {stage} has ended: finetuning from the weights of epoch {best_epoch}")

    def _save_or_pause(self, save_after: float) -> Pause | None:
        """Save if the last checkpoint is `save_after` seconds old. If training must pause, return the reason."""
        action: Action = "continue"
        if self._since_save.seconds() >= save_after:
            action = "save"
        if self.time_budget is not None and self._since_start.seconds() >= self.time_budget:
            action = "time-budget"
        if self.should_stop():
            action = "interrupted"
        # Clocks and signals differ between ranks, so all of them do the most urgent thing that any of them has to do.
        action = ACTIONS[self.training.ranks.largest(ACTIONS.index(action))]
        if action == "continue":
            return None
        if action == "save":
            self._save()
            return None
        return action

    def _save(self) -> None:
        self._count_seconds()
        self.save(take_checkpoint(self.training))
        self._since_save.restart()

    def _count_seconds(self) -> None:
        self.training.state.seconds += self._since_count.restart()
