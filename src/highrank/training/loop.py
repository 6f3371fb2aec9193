"""The training loop: NT-ASGD, then finetuning, in stages that share every line (section 3 and appendix B of the paper).

Stage 0 trains with SGD until the non-monotone rule turns averaging on (`nt_asgd.is_worse` with `train.nonmono`), then
goes on with averaging. Stages 1, 2, ... finetune: they start from the best weights so far and average from their first
step. Any averaged stage ends by the same rule with `train.patience`, or after its most epochs.

    # differs from the paper's code: there, stage 0 always runs its 1000 epochs, and finetuning stops by the rule with
    # 5 epochs instead of `train.patience`. The rule never fires while the averaged validation loss still falls.

With `train.averaging = "two-tailed"` every stage averages from its first step (`two_tailed.py`), so that stage 0, too,
ends by `train.patience`. With `train.partial_shuffle` every epoch begins by rotating the columns.

An epoch visits windows of random length over the columns; each window is one update (`step.py`) with learning rate
lr * length / bptt. Everything that decides what comes next is in `Training`, and `checkpoint()` captures all of it.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from highrank.data.batches import Window, columns, random_windows, rotate
from highrank.data.corpus import Corpus
from highrank.errors import UserError
from highrank.evaluation.perplexity import evaluate, perplexity
from highrank.recipes.recipe import Recipe
from highrank.training import checkpoint as checkpoints
from highrank.training.checkpoint import Checkpoint, Progress, ShortAverage, stage_result
from highrank.training.clock import Clock
from highrank.training.graph import GraphedStep
from highrank.training.metrics import Metrics
from highrank.training.nt_asgd import NTASGD, is_worse
from highrank.training.provenance import provenance
from highrank.training.run import Run, build_model, copy_weights
from highrank.training.step import Precision, Step
from highrank.training.two_tailed import TwoTailed

MAX_SKIPPED_IN_A_ROW = 20
READ_EVERY_WINDOWS = 50
EPOCH_CHECKPOINT_SECONDS = 20.0

Outcome = Literal["finished", "max-epochs", "time-budget", "interrupted"]


class Listener(Protocol):
    """Who is told how it goes; `training.progress` draws bars."""

    def epoch_started(self, epoch: int, rows: int, row: int) -> None: ...
    def window_done(self, row: int, tokens: int, loss: float) -> None: ...  # tokens of this epoch so far
    def epoch_done(self, record: dict[str, Any]) -> None: ...
    def message(self, text: str) -> None: ...


class Silent:
    def epoch_started(self, epoch: int, rows: int, row: int) -> None: ...
    def window_done(self, row: int, tokens: int, loss: float) -> None: ...  # tokens of this epoch so far
    def epoch_done(self, record: dict[str, Any]) -> None: ...
    def message(self, text: str) -> None: ...


class Training:
    """One run in memory: model, optimiser, generators and position."""

    def __init__(self, recipe: Recipe, corpus: Corpus, run: Run, device: torch.device, *, graphs: bool = True) -> None:
        self.recipe, self.run, self.device = recipe, run, device
        self.corpus = corpus
        self.columns = columns(corpus.splits["train"], recipe.train.batch_size).to(device)  # (T, B)
        self.stream = self.columns  # as this epoch has them
        torch.manual_seed(recipe.train.seed)
        self.rng = np.random.default_rng(recipe.train.seed)  # window lengths, offsets of columns
        self.model = build_model(recipe, corpus.vocab_size).to(device)
        averaging = TwoTailed if recipe.train.averaging == "two-tailed" else NTASGD
        self.optimizer = averaging(self.model.parameters(), recipe.train.weight_decay)
        how = GraphedStep if graphs and device.type == "cuda" else Step
        self.step = how(self.model, self.optimizer, recipe.train, device)
        self.progress = Progress()
        self.unsaved_best: dict[str, Tensor] | None = None  # written with the next checkpoint

    # --- one window -------------------------------------------------------------------------------------------------

    def windows(self) -> Iterator[Window]:
        """The rest of the epoch; at its beginning the columns are rotated, if the recipe wants that."""
        train = self.recipe.train
        if train.partial_shuffle and self.progress.row == 0:
            self._rotate(self.rng.integers(len(self.columns), size=train.batch_size).tolist())
        return random_windows(
            self.stream, self.rng, train.bptt, train.max_over_bptt, train.window_multiple, self.progress.row
        )

    def _rotate(self, offsets: list[int]) -> None:
        self.progress.offsets = offsets
        self.stream = rotate(self.columns, offsets)

    def train_window(self, window: Window) -> None:
        """One update; a loss or gradient that is not finite updates nothing and is counted."""
        train, progress = self.recipe.train, self.progress
        lr = train.lr if progress.stage == 0 else train.finetune_lr or train.lr
        self.step(window.words, window.targets, lr * len(window.words) / train.bptt)
        progress.step += 1
        progress.row = window.start + len(window.words)

    def read_totals(self) -> float:
        """Bring the device's totals into `progress`; returns the last window's mean loss in nats."""
        totals, progress = self.step.read(), self.progress
        progress.loss_sum += totals.loss_sum
        progress.loss_tokens += totals.tokens
        progress.skipped += totals.skipped
        progress.skipped_in_a_row = totals.skipped_in_a_row
        if progress.skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
            raise UserError(
                f"the loss or its gradient was not finite in {progress.skipped_in_a_row} windows in a row: lower "
                f"train.lr (now {self.recipe.train.lr:g}) or use train.precision=float32, and start again; the last "
                f"good checkpoint is in {self.run.folder}."
            )
        return totals.last_loss

    # --- one epoch --------------------------------------------------------------------------------------------------

    def validate(self) -> float:
        def loss() -> float:
            valid, columns = self.corpus.splits["valid"], self.recipe.train.eval_batch_size
            nll = evaluate(self.model, valid, columns, score=self.step.score).nll
            return nll if math.isfinite(nll) else math.inf  # nothing compares with NaN

        return self.optimizer.evaluate(loss)

    def end_epoch(self, valid: float) -> None:
        """Keep the best weights; decide on averaging, the end of the stage and the end of the run."""
        progress, train = self.progress, self.recipe.train
        progress.epoch += 1
        progress.stage_epoch += 1
        progress.row, progress.loss_sum, progress.loss_tokens = 0, 0.0, 0
        self.step.reset_hidden()
        if progress.best_valid is None or valid < progress.best_valid:
            progress.best_valid, progress.best_epoch = valid, progress.epoch
            with self.optimizer.averaged_weights():
                self.unsaved_best = {name: p.detach().clone() for name, p in self.model.named_parameters()}

        averaging = self.optimizer.averaging
        worse = is_worse(valid, progress.history, train.patience if averaging else train.nonmono)
        progress.history.append(valid)
        most = train.max_epochs if progress.stage == 0 else train.finetune_max_epochs
        if progress.stage_epoch >= most or (averaging and worse):
            self._next_stage()
        elif worse:
            self.optimizer.start_averaging()
            progress.history = []

    def _next_stage(self) -> None:
        progress = self.progress
        if progress.stage >= self.recipe.train.finetunes:
            progress.finished = True
            return
        self.save_best()
        self.run.load_weights(self.model)
        # The next stage may find better weights and take the place of these: what they are worth is told now.
        splits = ("valid", "test")
        results = {f"{name}_ppl": evaluate(self.model, self.corpus.splits[name]).perplexity for name in splits}
        progress.stages.append(stage_result(progress, results))
        progress.stage += 1
        progress.stage_epoch = 0
        progress.history = []
        self.optimizer.start_averaging()

    def save_best(self) -> None:
        """Write the best weights to model.safetensors, if they are not there yet."""
        if self.unsaved_best is not None:
            about = {"epoch": self.progress.best_epoch, "valid_nll": self.progress.best_valid}
            self.run.save_model(self.unsaved_best, about)
            self.unsaved_best = None

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def checkpoint(self) -> Checkpoint:
        names = [name for name, _ in self.model.named_parameters()]
        averages, short = self.optimizer.averages, None
        if isinstance(self.optimizer, TwoTailed):
            tensors = dict(zip(names, self.optimizer.short, strict=True))
            count, won, fresh = int(self.optimizer.n_short.item()), self.optimizer.won, self.optimizer.fresh
            short = ShortAverage(tensors, count, won, fresh)
        return Checkpoint(
            progress=replace(self.progress, history=list(self.progress.history)),
            weights=dict(self.model.named_parameters()),
            averages=None if averages is None else dict(zip(names, averages, strict=True)),
            n_averaged=int(self.optimizer.n_averaged.item()),
            hidden=self.step.hidden,
            window_rng=dict(self.rng.bit_generator.state),
            torch_rng=torch.get_rng_state(),
            cuda_rng=torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
            short=short,
        )

    def restore(self, saved: Checkpoint) -> None:
        where = self.run.folder / "checkpoint.json"
        if saved.averages is not None:
            copy_weights(self.model, saved.averages, where)
            self.optimizer.start_averaging()
        if saved.short is not None and isinstance(self.optimizer, TwoTailed):
            copy_weights(self.model, saved.short.weights, where)
            self.optimizer.load_short(*saved.short[1:])
        copy_weights(self.model, saved.weights, where)
        self.optimizer.n_averaged.fill_(saved.n_averaged)
        self.progress = saved.progress
        if saved.progress.offsets:
            self._rotate(saved.progress.offsets)
        self.step.skipped_in_a_row = saved.progress.skipped_in_a_row
        if saved.hidden:  # an export may leave it out
            self.step.load_hidden(saved.hidden)
        self.rng = checkpoints.generator(saved.window_rng)
        torch.set_rng_state(saved.torch_rng)
        if saved.cuda_rng is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(saved.cuda_rng, self.device)


def train(
    recipe: Recipe,
    corpus: Corpus,
    run: Run,
    device: torch.device,
    *,
    resume: bool = False,
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

    `should_stop` is asked between windows; whatever the reason, the run is saved and can be resumed exactly.
    """
    listener = listener or Silent()
    if not resume:
        precision = Precision.name_of(recipe.train.precision, device)
        recipe = replace(recipe, train=replace(recipe.train, precision=precision))
    training = Training(recipe, corpus, run, device, graphs=graphs)
    if not resume:
        run.create(recipe, corpus, device, data_dir, made_by)
    with run.locked():
        return _train(training, resume, max_epochs, time_budget, checkpoint_every, listener, should_stop)


def _train(
    training: Training,
    resume: bool,
    max_epochs: int | None,
    time_budget: float | None,
    checkpoint_every: float,
    listener: Listener,
    should_stop: Callable[[], bool],
) -> Outcome:
    run = training.run
    if resume:
        _restore(training)
    progress = training.progress
    progress.pieces.append(
        {
            "epoch": progress.epoch,
            "seconds": progress.seconds,
            "time_budget": time_budget,
            "outcome": None,
            **provenance(training.device),
        }
    )
    metrics = Metrics(run.folder, progress.metrics_bytes, progress.step)
    clock = Clock(checkpoint_every)

    def save() -> None:
        training.read_totals()
        training.save_best()
        clock.count(progress)
        progress.metrics_bytes = metrics.size()
        checkpoints.save(run.folder, training.checkpoint())
        clock.saved()

    if not (run.folder / "checkpoint.json").exists():
        save()  # from here on, a run without a checkpoint is a damaged one
    outcome: Outcome = "finished"
    try:
        while not progress.finished:
            if max_epochs is not None and progress.epoch >= max_epochs:
                outcome = "max-epochs"
                break
            outcome = _epoch(training, metrics, clock, listener, save, time_budget, should_stop)
            if outcome == "finished" and not progress.finished:
                outcome = _reason_to_pause(clock, time_budget, should_stop) or outcome
            if outcome != "finished":
                break
        progress.pieces[-1]["outcome"] = outcome
        save()
    finally:
        metrics.close()
    return outcome


def _restore(training: Training) -> None:
    run = training.run
    if not (run.folder / "checkpoint.json").exists():
        if run.model_file.exists():
            raise UserError(f"{run.folder} has lost its checkpoint.json: restore it, or start a new run.")
        return  # killed before its first checkpoint: from the beginning
    saved = checkpoints.load(run.folder)
    try:
        training.restore(saved)
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        raise UserError(f"the checkpoint in {run.folder} is damaged ({error}); restore it or start anew.") from None


def _reason_to_pause(
    clock: Clock, time_budget: float | None, should_stop: Callable[[], bool]
) -> Literal["interrupted", "time-budget"] | None:
    if should_stop():
        return "interrupted"
    return "time-budget" if time_budget is not None and clock.since_start() >= time_budget else None


def _epoch(
    training: Training,
    metrics: Metrics,
    clock: Clock,
    listener: Listener,
    save: Callable[[], None],
    time_budget: float | None,
    should_stop: Callable[[], bool],
) -> Outcome:
    """The rest of one epoch: windows, validation, and what follows from it."""
    progress, stream = training.progress, training.stream
    listener.epoch_started(progress.epoch + 1, len(stream) - 1, progress.row)
    began, tokens = time.perf_counter(), 0
    # Reading a loss waits for the device: a CPU has nothing to wait for, a GPU is asked now and then.
    every = 1 if training.device.type == "cpu" else READ_EVERY_WINDOWS
    for i, window in enumerate(training.windows()):
        training.train_window(window)
        tokens += window.targets.numel()
        if i % every == 0:
            loss = training.read_totals()
            listener.window_done(progress.row, tokens, loss)
            if clock.metrics_due():
                record = {"kind": "train", "step": progress.step, "epoch": progress.epoch, "nll": loss}
                metrics.write(record, progress.step)
        if progress.row >= len(stream) - 1:
            break  # the epoch ends below; its state is saved there
        if reason := _reason_to_pause(clock, time_budget, should_stop):
            return reason
        if clock.save_due():
            save()

    training.read_totals()
    seconds = time.perf_counter() - began
    train_nll = progress.loss_sum / max(1, progress.loss_tokens)
    averaged, stage = training.optimizer.averaging, progress.stage
    valid = training.validate()
    averages = training.optimizer.about()  # the end of a stage makes new ones
    clock.count(progress)
    training.end_epoch(valid)
    clock.count(progress)
    record = {
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
        "tokens_per_second": tokens / max(seconds, 1e-9),
        "seconds": progress.seconds,
        **averages,
    }
    metrics.write(record, progress.step)
    listener.epoch_done(record)
    if training.optimizer.averaging and not averaged:
        listener.message("validation stopped improving: averaging the weights from now on")
    if progress.stage != stage:
        listener.message(f"stage {stage} is over: finetuning from the weights of epoch {progress.best_epoch}")
    # Where epochs take seconds, writing hundreds of megabytes after each would cost a tenth of the time.
    if clock.save_due(EPOCH_CHECKPOINT_SECONDS):
        save()
    return "finished"
