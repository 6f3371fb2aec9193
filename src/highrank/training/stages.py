"""Training in memory: windows, epochs, and the stages that they add up to (section 3 and appendix B of the paper).

Stage 0 trains with SGD until the non-monotone rule turns averaging on (`nt_asgd.is_worse` with `train.nonmono`), then
goes on with averaging. Stages 1, 2, ... finetune: they start from the best weights so far and average from their first
step. Any averaged stage ends by the same rule with `train.patience`, after its most epochs, or on request (`finetune`).

    # differs from the paper's code: there, stage 0 always runs its 1000 epochs, and finetuning stops by the rule with
    # 5 epochs instead of `train.patience`. The rule never fires while the averaged validation loss still falls.

With `train.averaging = "two-tailed"` every stage averages from its first step (`two_tailed.py`), so that stage 0, too,
ends by `train.patience`. With `train.partial_shuffle` every epoch begins by rotating the columns.

An epoch visits windows of random length over the columns; each window is one update (`step.py`) with learning rate
lr * length / bptt. Everything that decides what comes next is in `Training`, and `checkpoint()` captures all of it.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from highrank.data.batches import Window, columns, random_windows, rotate
from highrank.data.corpus import Corpus
from highrank.errors import UserError
from highrank.evaluation.perplexity import evaluate
from highrank.models import build_model
from highrank.recipes.recipe import Recipe
from highrank.runs import checkpoint as checkpoints
from highrank.runs.checkpoint import Checkpoint, ShortAverage
from highrank.runs.folder import Run, copy_weights
from highrank.runs.part import perplexities
from highrank.training.graph import GraphedStep
from highrank.training.nt_asgd import NTASGD, is_worse
from highrank.training.state import Progress, stage_result
from highrank.training.step import Step
from highrank.training.two_tailed import TwoTailed

MAX_SKIPPED_IN_A_ROW = 20


class Training:
    """One run in memory: model, optimiser, generators and position."""

    def __init__(self, recipe: Recipe, corpus: Corpus, run: Run, device: torch.device, *, graphs: bool = True) -> None:
        self.recipe, self.run, self.device = recipe, run, device
        self.corpus = corpus
        self.columns = columns(corpus.splits["train"], recipe.train.batch_size).to(device)  # (T, B)
        self.stream = self.columns  # as this epoch has them
        torch.manual_seed(recipe.train.seed)
        self.rng = np.random.default_rng(recipe.train.seed)  # window lengths, offsets of columns
        self.model = build_model(recipe.model, corpus.vocab_size).to(device)
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
        self._rewind()
        if progress.best_valid is None or valid < progress.best_valid:
            progress.best_valid, progress.best_epoch = valid, progress.epoch
            with self.optimizer.averaged_weights():
                self.unsaved_best = {name: p.detach().clone() for name, p in self.model.named_parameters()}

        averaging = self.optimizer.averaging
        worse = is_worse(valid, progress.history, train.patience if averaging else train.nonmono)
        progress.history.append(valid)
        most = train.max_epochs if progress.stage == 0 else train.finetune_max_epochs
        if progress.stage_epoch >= most or (averaging and worse):
            if progress.stage < train.finetunes:
                self._next_stage()
            else:
                progress.finished = True
        elif worse:
            self.optimizer.start_averaging()
            progress.history = []

    def finetune(self) -> None:
        """Begin the next stage now, whatever the rules say of this one: even another after the last.

        The rest of an epoch that was begun is left out.
        """
        progress = self.progress
        if progress.best_valid is None:
            raise UserError(f"{self.run.folder} has no weights to finetune yet: train it for an epoch first.")
        self._rewind()
        self._next_stage()
        progress.stages[-1]["ended"] = "on request"
        progress.finished = False

    def _rewind(self) -> None:
        """To the first row of the text, where an epoch begins."""
        self.progress.row, self.progress.loss_sum, self.progress.loss_tokens = 0, 0.0, 0
        self.step.reset_hidden()

    def _next_stage(self) -> None:
        progress = self.progress
        if self.unsaved_best is None:
            self.run.load_weights(self.model)
        else:
            copy_weights(self.model, self.unsaved_best, self.run.folder)
        # The next stage may find better weights and take the place of these: what they are worth is told now.
        progress.stages.append(stage_result(progress, perplexities(self.model, self.corpus.splits)))
        progress.stage += 1
        progress.stage_epoch = 0
        progress.history = []
        self.optimizer.start_averaging()

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def save(self) -> None:
        checkpoints.save(self.run.folder, self.checkpoint())
        self.unsaved_best = None

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
            best=self.unsaved_best,
        )

    def restore(self, saved: Checkpoint) -> None:
        where = self.run.checkpoint_file
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
