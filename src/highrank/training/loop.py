"""The training loop: NT-ASGD, then finetuning, in stages that share every line (section 3 and appendix B of the paper).

Stage 0 trains with SGD until the non-monotone rule turns averaging on (`nt_asgd.is_worse` with `train.nonmono`), then
goes on with averaging. Stages 1, 2, ... finetune: they start from the best weights so far and average from their first
step. Any averaged stage ends by the same rule with `train.patience`, or after its most epochs.

    # differs from the paper's code: there, stage 0 always runs its 1000 epochs. The stop rule never fires while the
    # averaged validation loss still falls.

An epoch visits windows of random length over the columns; each window's update has learning rate lr * length / bptt and

    loss = mean nll + alpha mean(g^2) + beta mean((raw_t - raw_(t-1))^2)

Everything that decides what comes next is in `Training`, and `checkpoint()` captures all of it.
"""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from highrank.data.batches import Window, columns, random_windows
from highrank.data.corpus import Corpus
from highrank.errors import UserError
from highrank.evaluation.perplexity import evaluate, perplexity
from highrank.files import write_json
from highrank.models.language_model import Scored
from highrank.ops.lstm import State
from highrank.recipes.recipe import Recipe
from highrank.training import checkpoint as checkpoints
from highrank.training.checkpoint import Checkpoint, Progress
from highrank.training.metrics import Metrics
from highrank.training.nt_asgd import NTASGD, is_worse
from highrank.training.run import Run, build_model, copy_weights, load

MAX_SKIPPED_IN_A_ROW = 20
METRICS_EVERY_SECONDS = 10.0

Outcome = Literal["finished", "max-epochs", "time-budget", "interrupted"]


class Listener(Protocol):
    """Who is told how it goes; `training.progress` draws bars."""

    def epoch_started(self, epoch: int, rows: int, row: int) -> None: ...
    def window_done(self, row: int, tokens: int, loss: float) -> None: ...
    def epoch_done(self, record: dict[str, Any]) -> None: ...
    def message(self, text: str) -> None: ...


class Silent:
    def epoch_started(self, epoch: int, rows: int, row: int) -> None: ...
    def window_done(self, row: int, tokens: int, loss: float) -> None: ...
    def epoch_done(self, record: dict[str, Any]) -> None: ...
    def message(self, text: str) -> None: ...


class Training:
    """One run in memory: model, optimiser, generators and position."""

    def __init__(self, recipe: Recipe, corpus: Corpus, run: Run, device: torch.device) -> None:
        self.recipe, self.run, self.device = recipe, run, device
        self.corpus = corpus
        self.stream = columns(corpus.splits["train"], recipe.train.batch_size).to(device)  # (T, B)
        torch.manual_seed(recipe.train.seed)
        self.rng = np.random.default_rng(recipe.train.seed)  # window lengths
        self.model = build_model(recipe, corpus.vocab_size).to(device)
        self.optimizer = NTASGD(self.model.parameters(), recipe.train.weight_decay)
        self.progress = Progress()
        self.hidden: list[list[State]] = []  # by micro-batch; empty: start from zeros

    # --- one window -------------------------------------------------------------------------------------------------

    def train_window(self, window: Window) -> float:
        """One update. Returns the mean loss in nats; a loss or gradient that is not finite updates nothing."""
        train, progress = self.recipe.train, self.progress
        batch = train.batch_size
        micro = train.micro_batch_size or batch
        self.hidden = self.hidden or [self.model.initial_state(micro) for _ in range(batch // micro)]
        self.model.train()
        self.optimizer.zero_grad()
        nll = torch.zeros((), device=self.device)
        for i, start in enumerate(range(0, batch, micro)):
            part = slice(start, start + micro)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=train.precision == "bfloat16"):
                scored = self.model(window.words[:, part], window.targets[:, part], _detached(self.hidden[i]))
            self.hidden[i] = scored.hidden.state
            mean = scored.nll.mean()
            ((mean + regularisation(scored, train.alpha, train.beta)) * (micro / batch)).backward()
            nll += mean.detach() * (micro / batch)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), train.clip)

        loss, finite_norm = nll.item(), math.isfinite(norm.item())
        if math.isfinite(loss) and finite_norm:
            lr = train.lr if progress.stage == 0 else train.finetune_lr or train.lr
            self.optimizer.step(lr * len(window.words) / train.bptt)
            progress.skipped_in_a_row = 0
            progress.loss_sum += loss * window.targets.numel()
            progress.loss_tokens += window.targets.numel()
        else:
            self._skip()
        progress.step += 1
        progress.row = window.start + len(window.words)
        return loss

    def _skip(self) -> None:
        self.hidden = []  # a state that is not finite would poison every later window
        self.progress.skipped += 1
        self.progress.skipped_in_a_row += 1
        if self.progress.skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
            raise UserError(
                f"the loss or its gradient was not finite in {MAX_SKIPPED_IN_A_ROW} windows in a row: lower train.lr "
                f"(now {self.recipe.train.lr:g}) or use train.precision=float32, and start again; the last good "
                f"checkpoint is in {self.run.folder}."
            )

    # --- one epoch --------------------------------------------------------------------------------------------------

    def validate(self) -> float:
        with self.optimizer.averaged_weights():
            return evaluate(self.model, self.corpus.splits["valid"], self.recipe.train.eval_batch_size).nll

    def end_epoch(self, valid: float) -> None:
        """Keep the best weights; decide on averaging, the end of the stage and the end of the run."""
        progress, train = self.progress, self.recipe.train
        progress.epoch += 1
        progress.stage_epoch += 1
        progress.row, progress.loss_sum, progress.loss_tokens = 0, 0.0, 0
        self.hidden = []
        if progress.best_valid is None or valid < progress.best_valid:
            progress.best_valid, progress.best_epoch = valid, progress.epoch
            with self.optimizer.averaged_weights():
                self.run.save_model(self.model, {"epoch": progress.epoch, "valid_nll": valid})

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
        progress.stage += 1
        progress.stage_epoch = 0
        progress.history = []
        self.run.load_weights(self.model)
        self.optimizer.start_averaging()

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def checkpoint(self) -> Checkpoint:
        names = [name for name, _ in self.model.named_parameters()]
        averages = self.optimizer.averages
        return Checkpoint(
            progress=replace(self.progress, history=list(self.progress.history)),
            weights=dict(self.model.named_parameters()),
            averages=None if averages is None else dict(zip(names, averages, strict=True)),
            n_averaged=self.optimizer.n_averaged,
            hidden=[_detached(state) for state in self.hidden],
            window_rng=dict(self.rng.bit_generator.state),
            torch_rng=torch.get_rng_state(),
            cuda_rng=torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
        )

    def restore(self, saved: Checkpoint) -> None:
        where = self.run.folder / "checkpoint.json"
        if saved.averages is not None:
            copy_weights(self.model, saved.averages, where)
            self.optimizer.start_averaging()
        copy_weights(self.model, saved.weights, where)
        self.optimizer.n_averaged = saved.n_averaged
        self.progress = saved.progress
        self.hidden = [[(h.to(self.device), c.to(self.device)) for h, c in state] for state in saved.hidden]
        self.rng = checkpoints.generator(saved.window_rng)
        torch.set_rng_state(saved.torch_rng)
        if saved.cuda_rng is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(saved.cuda_rng, self.device)


def regularisation(scored: Scored, alpha: float, beta: float) -> Tensor | float:
    """alpha mean(g^2) + beta mean((raw_t - raw_(t-1))^2): AR on the dropped-out hidden states, TAR on the raw ones."""
    penalty: Tensor | float = 0.0
    if alpha:
        penalty = penalty + alpha * scored.hidden.g.float().pow(2).mean()
    if beta and len(scored.hidden.raw) > 1:
        penalty = penalty + beta * scored.hidden.raw.float().diff(dim=0).pow(2).mean()
    return penalty


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
    listener: Listener | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Train until the recipe's rules end the run, `max_epochs` in all, `time_budget` seconds from now, or a stop.

    `should_stop` is asked between windows; whatever the reason, the run is saved and can be resumed exactly.
    """
    listener = listener or Silent()
    if not resume:
        run.create(recipe, corpus, device, data_dir)
    training = Training(recipe, corpus, run, device)
    if resume and (run.folder / "checkpoint.json").exists():
        training.restore(checkpoints.load(run.folder))
    progress = training.progress
    metrics = Metrics(run.folder, progress.metrics_bytes, progress.step)
    clock = _Clock(progress, checkpoint_every)

    def save() -> None:
        clock.count(progress)
        progress.metrics_bytes = metrics.size()
        checkpoints.save(run.folder, training.checkpoint())
        clock.saved()

    outcome: Outcome = "finished"
    try:
        while not progress.finished:
            if max_epochs is not None and progress.epoch >= max_epochs:
                outcome = "max-epochs"
                break
            outcome = _epoch(training, metrics, clock, listener, save, time_budget, should_stop)
            if outcome != "finished":
                break
        save()
    finally:
        metrics.close()
    return outcome


def _epoch(
    training: Training,
    metrics: Metrics,
    clock: "_Clock",
    listener: Listener,
    save: Callable[[], None],
    time_budget: float | None,
    should_stop: Callable[[], bool],
) -> Outcome:
    """The rest of one epoch: windows, validation, and what follows from it."""
    progress, train, stream = training.progress, training.recipe.train, training.stream
    listener.epoch_started(progress.epoch + 1, len(stream) - 1, progress.row)
    began, tokens = time.perf_counter(), 0
    for window in random_windows(stream, training.rng, train.bptt, train.max_over_bptt, progress.row):
        loss = training.train_window(window)
        tokens += window.targets.numel()
        listener.window_done(progress.row, window.targets.numel(), loss)
        if clock.metrics_due():
            metrics.write({"kind": "train", "step": progress.step, "epoch": progress.epoch, "nll": loss}, progress.step)
        if progress.row >= len(stream) - 1:
            break  # the epoch ends below; its state is saved there
        if should_stop():
            return "interrupted"
        if time_budget is not None and clock.since_start() >= time_budget:
            return "time-budget"
        if clock.save_due():
            save()

    seconds = time.perf_counter() - began
    train_nll = progress.loss_sum / max(1, progress.loss_tokens)
    averaged, stage = training.optimizer.averaging, progress.stage
    valid = training.validate()
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
    }
    metrics.write(record, progress.step)
    listener.epoch_done(record)
    if training.optimizer.averaging and not averaged:
        listener.message("validation stopped improving: averaging the weights from now on")
    if progress.stage != stage:
        listener.message(f"stage {stage} is over: finetuning from the weights of epoch {progress.best_epoch}")
    save()
    return "finished"


class _Clock:
    """Wall time: of the run in all, since this start, and since the last save or metrics line."""

    def __init__(self, progress: Progress, checkpoint_every: float) -> None:
        self._start = self._saved = self._counted = self._wrote = time.perf_counter()
        self._checkpoint_every = checkpoint_every

    def since_start(self) -> float:
        return time.perf_counter() - self._start

    def count(self, progress: Progress) -> None:
        now = time.perf_counter()
        progress.seconds += now - self._counted
        self._counted = now

    def save_due(self) -> bool:
        return time.perf_counter() - self._saved >= self._checkpoint_every

    def saved(self) -> None:
        self._saved = time.perf_counter()

    def metrics_due(self) -> bool:
        if time.perf_counter() - self._wrote < METRICS_EVERY_SECONDS:
            return False
        self._wrote = time.perf_counter()
        return True


def summarize(run: Run, corpus: Corpus, device: torch.device, outcome: Outcome, batch_size: int = 1) -> dict[str, Any]:
    """Perplexities of the run's best weights, written to summary.json."""
    info = run.info()
    progress = checkpoints.load_progress(run.folder)
    model = load(run.folder, device).model
    results = {split: evaluate(model, corpus.splits[split], batch_size) for split in ("valid", "test")}
    summary = {
        "recipe": info["recipe"]["name"],
        "outcome": outcome,
        "epochs": progress.epoch,
        "best_epoch": progress.best_epoch,
        "stage": progress.stage,
        "parameters": model.n_parameters(),
        "valid_ppl": results["valid"].perplexity,
        "test_ppl": results["test"].perplexity,
        "eval_batch_size": batch_size,
        "seconds": progress.seconds,
        "skipped": progress.skipped,
        "seed": info["recipe"]["train"]["seed"],
        "provenance": info["provenance"],
    }
    write_json(run.summary_file, summary)
    return summary


def _detached(state: list[State]) -> list[State]:
    return [(h.detach(), c.detach()) for h, c in state]
