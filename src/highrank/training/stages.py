"""Windows, epochs and stages: training in memory (section 3 and appendix B of the paper).

Stage 0 trains with SGD until the non-monotone rule starts averaging (`nt_asgd.is_worse` with `train.nonmono`), then
continues with averaging. Stages 1, 2, ... finetune: they start from the best weights so far and average from their
first step. A stage with averaging ends by the same rule with `train.patience`, after its maximum number of epochs, or
on request (`start_finetuning`).

    # differs from the paper's code: there, stage 0 always runs its 1000 epochs, and finetuning stops by the rule with
    # 5 epochs instead of `train.patience`. The rule never triggers while the averaged validation loss still falls.

With `train.averaging = "two-tailed"` every stage averages from its first step (`two_tailed.py`), so stage 0 also ends
by `train.patience`. With `train.partial_shuffle` every epoch starts by rotating the columns.

An epoch visits windows of random length over the columns. Each window is one update (`step.py`) with learning rate
lr * length / bptt. `loop.py` repeats this until the run ends or pauses.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from highrank.data.batches import Window, columns, random_windows, rotate
from highrank.data.corpus import Corpus
from highrank.errors import UserError
from highrank.evaluation.perplexity import evaluate
from highrank.models import build_model
from highrank.recipes.recipe import Recipe
from highrank.training.graph import GraphedStep
from highrank.training.nt_asgd import NTASGD, is_worse
from highrank.training.state import Checkpoint, StageResult, TrainingState, Weights, get_weights, set_weights, under
from highrank.training.step import Step
from highrank.training.two_tailed import TwoTailed

MAX_SKIPPED_IN_A_ROW = 20


class DivergedError(UserError):
    """The loss or its gradient was not finite in many windows in a row."""


class Training:
    """A model in training: its optimiser, random generators, state and best weights, all in memory."""

    def __init__(self, recipe: Recipe, corpus: Corpus, device: torch.device, *, graphs: bool = True) -> None:
        self.recipe = recipe
        self.corpus = corpus
        self.device = device
        self.columns = columns(corpus.splits["train"], recipe.train.batch_size).to(device)  # (T, B)
        self.stream = self.columns  # the columns in this epoch's rotation
        torch.manual_seed(recipe.train.seed)
        self.rng = np.random.default_rng(recipe.train.seed)  # draws window lengths and column offsets
        self.model = build_model(recipe.model, corpus.vocab_size).to(device)
        averaging = TwoTailed if recipe.train.averaging == "two-tailed" else NTASGD
        self.optimizer = averaging(self.model.parameters(), recipe.train.weight_decay)
        step = GraphedStep if graphs and device.type == "cuda" else Step
        self.step = step(self.model, self.optimizer, recipe.train, device)
        self.state = TrainingState()
        self.best: Weights | None = None  # the best weights on validation so far

    # --- windows ----------------------------------------------------------------------------------------------------

    def windows(self) -> Iterator[Window]:
        """Yield the remaining windows of the epoch. At its first row, rotate the columns if the recipe asks for it."""
        train = self.recipe.train
        if train.partial_shuffle and self.state.row == 0:
            self._rotate(self.rng.integers(len(self.columns), size=train.batch_size).tolist())
        return random_windows(
            self.stream, self.rng, train.bptt, train.max_over_bptt, train.window_multiple, self.state.row
        )

    def _rotate(self, offsets: list[int]) -> None:
        self.state.offsets = offsets
        self.stream = rotate(self.columns, offsets)

    def train_window(self, window: Window) -> None:
        """Make one update. If the loss or its gradient is not finite, the update is skipped and counted."""
        train = self.recipe.train
        lr = train.lr if self.state.stage == 0 else train.finetune_lr or train.lr
        self.step(window.words, window.targets, lr * len(window.words) / train.bptt)
        self.state.step += 1
        self.state.row = window.start + len(window.words)

    def read_totals(self) -> float:
        """Add the totals kept on the device to `state`, and return the last window's mean loss in nats."""
        totals = self.step.read()
        state = self.state
        state.loss_sum += totals.loss_sum
        state.loss_tokens += totals.tokens
        state.skipped += totals.skipped
        state.skipped_in_a_row = totals.skipped_in_a_row
        if state.skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
            raise DivergedError(
                f"the loss or its gradient was not finite in {state.skipped_in_a_row} windows in a row: lower train.lr "
                f"(now {self.recipe.train.lr:g}) or use train.precision=float32, and start a new run."
            )
        return totals.last_loss

    # --- epochs -----------------------------------------------------------------------------------------------------

    def validate(self) -> float:
        """Return the validation loss, in nats per token, of the weights that represent the run."""

        def loss() -> float:
            valid = self.corpus.splits["valid"]
            nll = evaluate(self.model, valid, self.recipe.train.eval_batch_size, score=self.step.score).nll
            return nll if math.isfinite(nll) else math.inf  # NaN would make every comparison false

        return self.optimizer.evaluate(loss)

    def end_epoch(self, valid: float) -> None:
        """Keep the best weights, then decide on averaging, the end of the stage and the end of the run."""
        state = self.state
        train = self.recipe.train
        state.epoch += 1
        state.stage_epoch += 1
        self._rewind()
        if state.best_valid is None or valid < state.best_valid:
            state.best_valid = valid
            state.best_epoch = state.epoch
            with self.optimizer.averaged_weights():
                self.best = get_weights(self.model)

        averaging = self.optimizer.averaging
        worse = is_worse(valid, state.history, train.patience if averaging else train.nonmono)
        state.history.append(valid)
        max_epochs = train.max_epochs if state.stage == 0 else train.finetune_max_epochs
        if state.stage_epoch >= max_epochs or (averaging and worse):
            if state.stage < train.finetunes:
                self._next_stage()
            else:
                state.finished = True
        elif worse:
            self.optimizer.start_averaging()
            state.history = []

    def start_finetuning(self) -> None:
        """Start the next finetuning stage now, even after the recipe's last one. An unfinished epoch is dropped."""
        if self.best is None:
            raise UserError("there are no weights to finetune yet: train for at least one epoch first.")
        self._rewind()
        self._next_stage(ended="on request")
        self.state.finished = False

    def _rewind(self) -> None:
        """Return to the first row of the text, with empty sums and zero hidden states."""
        self.state.row = 0
        self.state.loss_sum = 0.0
        self.state.loss_tokens = 0
        self.step.reset_hidden()

    def _next_stage(self, ended: str | None = None) -> None:
        state = self.state
        assert self.best is not None
        set_weights(self.model, self.best)
        # Evaluated now, because better weights of the next stage will replace these.
        state.stages.append(
            StageResult(
                stage=state.stage,
                epochs=state.epoch,
                best_epoch=state.best_epoch,
                seconds=state.seconds,
                valid_ppl=evaluate(self.model, self.corpus.splits["valid"]).perplexity,
                test_ppl=evaluate(self.model, self.corpus.splits["test"]).perplexity,
                ended=ended,
            )
        )
        state.stage += 1
        state.stage_epoch = 0
        state.history = []
        self.optimizer.start_averaging()

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def checkpoint(self) -> Checkpoint:
        """Return everything that training continues from. Tensors are shared with the model, not copied."""
        self.read_totals()
        optimizer = self.optimizer
        state = replace(
            self.state,
            history=list(self.state.history),
            stages=list(self.state.stages),
            n_averaged=int(optimizer.n_averaged.item()),
            window_rng=dict(self.rng.bit_generator.state),
        )
        lists = {"weights": optimizer.parameters, "averages": optimizer.averages or []}
        if isinstance(optimizer, TwoTailed):
            lists["short"] = optimizer.short
            state.n_short = int(optimizer.n_short.item())
            state.long_won = optimizer.long_won
            state.fresh = optimizer.fresh
        names = [name for name, _ in self.model.named_parameters()]
        tensors = {
            f"{kind}/{name}": x for kind, values in lists.items() for name, x in zip(names, values, strict=False)
        }
        tensors |= {f"hidden/{i}": hidden for i, hidden in enumerate(self.step.carried)}
        tensors["rng/torch"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["rng/cuda"] = torch.cuda.get_rng_state(self.device)
        return Checkpoint(state, tensors, self.best)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from `checkpoint`. Raise a ValueError if its tensors do not fit the model."""
        state = checkpoint.state
        tensors = checkpoint.tensors
        # The optimiser copies averages from the parameters, so load each average there first, the weights last.
        if averages := under("averages/", tensors):
            set_weights(self.model, averages)
            self.optimizer.start_averaging()
        self.optimizer.n_averaged.fill_(state.n_averaged)
        short = under("short/", tensors)
        if short and isinstance(self.optimizer, TwoTailed):
            set_weights(self.model, short)
            self.optimizer.set_short(state.n_short, state.long_won, state.fresh)
        set_weights(self.model, under("weights/", tensors))
        self.best = checkpoint.best
        self.state = state
        if state.offsets:
            self._rotate(state.offsets)
        self.step.skipped_in_a_row = state.skipped_in_a_row
        for i, hidden in enumerate(self.step.carried):
            if f"hidden/{i}" in tensors:
                hidden.copy_(tensors[f"hidden/{i}"])
        self.rng.bit_generator.state = state.window_rng
        torch.set_rng_state(tensors["rng/torch"])
        if "rng/cuda" in tensors and self.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["rng/cuda"], self.device)
