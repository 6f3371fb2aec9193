"""Updates, epochs and stages: training in memory (section 3 and appendix B of the paper).

Stage 0 trains with SGD until the non-monotone rule starts averaging (`nt_asgd.is_worse` with `train.nonmono`), then
continues with averaging. Stages 1, 2, ... finetune: they start from the best weights so far, with `train.finetune_lr`,
and average from their first step. A stage ends after its maximum number of epochs or on request (`start_finetuning`);
once it averages, also by the same rule with `train.patience`.

    # differs from the paper's code: there, stage 0 always runs its 1000 epochs, and finetuning stops by the rule with
    # 5 epochs instead of `train.patience`. The rule never triggers while the averaged validation loss still falls.

With `train.averaging = "two-tailed"` every stage averages from its first step (`two_tailed.py`), so stage 0 also ends
by `train.patience`.

With `train.averaging = "none"` no stage averages: the non-monotone rule divides the learning rate by `train.anneal`
instead. The stage ends when the rule triggers again and the last division has brought no improvement.

An epoch is one pass over the minibatches of a task (`task.py`), with one update (`step.py`) for each. Where a pass
takes hours, or seconds, `train.updates_per_epoch` sets the length of an epoch; each then continues where the last one
ended, in the next pass if need be. `loop.py` repeats epochs until the run ends or pauses.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch

from highrank.data.corpus import Corpus
from highrank.data.dialog import DialogCorpus
from highrank.errors import UserError
from highrank.recipes import AnyRecipe, DialogRecipe
from highrank.training.dialog import DialogTask
from highrank.training.graph import GraphedStep
from highrank.training.language import LanguageTask
from highrank.training.nt_asgd import NTASGD, is_worse
from highrank.training.ranks import ALONE, Ranks
from highrank.training.state import StageResult, TrainingState, Weights, get_weights, set_weights
from highrank.training.step import Step
from highrank.training.task import Minibatch, Task
from highrank.training.two_tailed import TwoTailed

MAX_SKIPPED_IN_A_ROW = 20


class DivergedError(UserError):
    """The loss or its gradient was not finite in many updates in a row."""


class Training:
    """A model in training: its task, optimiser, random generators, state and best weights, all in memory."""

    def __init__(
        self,
        recipe: AnyRecipe,
        corpus: Corpus | DialogCorpus,
        device: torch.device,
        *,
        graphs: bool = True,
        ranks: Ranks = ALONE,
    ) -> None:
        train = recipe.train
        self.train = train
        self.device = device
        self.ranks = ranks
        torch.manual_seed(train.seed)
        self.rng = np.random.default_rng(train.seed)  # draws window lengths and column offsets
        self.task = new_task(recipe, corpus, device, ranks)
        if not ranks.first:
            torch.manual_seed(train.seed + ranks.rank)  # dropout masks of its own, once the initial weights are drawn
        self.model = self.task.model
        averaging = TwoTailed if train.averaging == "two-tailed" else NTASGD
        parameters = dict(self.model.named_parameters())
        self.optimizer = averaging(parameters, train.weight_decay, adam=train.optimizer == "adam")
        step = GraphedStep if graphs and device.type == "cuda" else Step
        self.step = step(self.task, self.optimizer, train, device, ranks)
        self.state = TrainingState()
        self.start_stage()
        self.best: Weights | None = None  # the best weights on validation so far

    def start_stage(self) -> None:
        """Apply the settings of the current stage."""
        self.task.start_stage(self.state.stage)
        self.step.discard_graphs()  # they hold the settings of the stage before

    # --- updates ----------------------------------------------------------------------------------------------------

    def minibatches(self) -> Iterator[Minibatch]:
        """Yield the remaining minibatches of the pass; with `train.updates_per_epoch`, of the next passes too."""
        yield from self.task.minibatches(self.state, self.rng)
        while self.train.updates_per_epoch is not None:
            self._end_pass()
            yield from self.task.minibatches(self.state, self.rng)

    @property
    def epoch_progress(self) -> tuple[int, int]:
        """The position in the epoch and its length: in updates if the recipe sets their number, else in rows."""
        if self.train.updates_per_epoch is None:
            return self.state.row, self.task.pass_length
        return self.state.epoch_updates, self.train.updates_per_epoch

    @property
    def epoch_is_complete(self) -> bool:
        done, total = self.epoch_progress
        return done >= total

    @property
    def lr(self) -> float:
        """The learning rate of a window of mean length."""
        lr = self.train.lr
        if self.state.stage > 0 and self.train.finetune_lr is not None:
            lr = self.train.finetune_lr
        return lr / self.state.annealed

    def update(self, minibatch: Minibatch) -> None:
        """Make one update. If the loss or its gradient is not finite, keep the weights and count a skipped update."""
        self.step(minibatch.tensors, self.lr * minibatch.lr_factor)
        self.state.step += 1
        self.state.epoch_updates += 1
        self.state.row = minibatch.end

    def read_totals(self) -> float:
        """Add the totals kept on the device to `state`, and return the last update's mean loss in nats.

        Raise a DivergedError if too many updates in a row were skipped.
        """
        totals = self.step.read()
        state = self.state
        state.loss_sum += totals.loss_sum
        state.loss_tokens += totals.tokens
        state.skipped += totals.skipped
        state.skipped_in_a_row = totals.skipped_in_a_row
        if state.skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
            raise DivergedError(
                f"the loss or its gradient was not finite in {state.skipped_in_a_row} updates in a row: lower train.lr "
                f"(now {self.train.lr:g}) or use train.precision=float32, and start a new run."
            )
        return totals.last_loss

    # --- epochs -----------------------------------------------------------------------------------------------------

    def validate(self) -> float:
        """Return the validation loss, in nats per token, of the weights that represent the run."""

        def loss() -> float:
            # Round-off may differ between machines, and all ranks must draw the same conclusions.
            nll = self.ranks.broadcast(self.task.validate() if self.ranks.first else math.nan)
            return nll if math.isfinite(nll) else math.inf  # NaN would make every comparison false

        return self.optimizer.evaluate(loss)

    def end_epoch(self, valid: float) -> None:
        """Keep the best weights, then decide on averaging, annealing, the end of the stage and the end of the run."""
        state = self.state
        train = self.train
        state.epoch += 1
        state.stage_epoch += 1
        self._reset_sums()
        if train.updates_per_epoch is None or state.row >= self.task.pass_length:
            self._end_pass()
        if state.best_valid is None or valid < state.best_valid:
            state.best_valid = valid
            state.best_epoch = state.epoch
            with self.optimizer.averaged_weights():
                self.best = get_weights(self.model)

        worse = is_worse(valid, state.history, train.patience if self.optimizer.averaging else train.nonmono)
        state.history.append(valid)
        max_epochs = train.max_epochs if state.stage == 0 else train.finetune_max_epochs
        if state.stage_epoch >= max_epochs or (worse and self._rule_ends_stage()):
            if state.stage < train.finetunes:
                self._next_stage()
            else:
                state.finished = True
        elif worse:
            state.history = []
            if train.averaging == "none":
                state.annealed *= train.anneal
            else:
                self.optimizer.start_averaging()

    def _rule_ends_stage(self) -> bool:
        """Return whether the non-monotone rule ends the stage now, rather than start averaging or annealing."""
        if self.optimizer.averaging:
            return True
        if self.train.averaging != "none" or self.state.annealed == 1:
            return False
        assert self.state.best_valid is not None
        return min(self.state.history) > self.state.best_valid  # nothing improved since the last annealing

    def start_finetuning(self) -> None:
        """Start the next finetuning stage now, even after the recipe's last one. An unfinished epoch is dropped."""
        if self.best is None:
            raise UserError("there are no weights to finetune yet: train for at least one epoch first.")
        self._reset_sums()
        self._rewind()
        self._next_stage(ended="on request")
        self.state.finished = False

    def _reset_sums(self) -> None:
        """Empty the sums over an epoch."""
        self.state.loss_sum = 0.0
        self.state.loss_tokens = 0
        self.state.epoch_updates = 0

    def _end_pass(self) -> None:
        self.state.passes += 1
        self._rewind()

    def _rewind(self) -> None:
        """Return to the start of the training data, with zero hidden states."""
        self.state.row = 0
        self.task.carried.zero_()

    def _next_stage(self, ended: str | None = None) -> None:
        """Evaluate the best weights on valid and test, and start the next stage from them."""
        state = self.state
        assert self.best is not None
        set_weights(self.model, self.best)
        # Evaluate now, because better weights of the next stage will replace these.
        state.stages.append(
            StageResult(
                stage=state.stage,
                epochs=state.epoch,
                best_epoch=state.best_epoch,
                seconds=state.seconds,
                valid_ppl=self._evaluate("valid"),
                test_ppl=self._evaluate("test"),
                ended=ended,
            )
        )
        state.stage += 1
        state.stage_epoch = 0
        state.history = []
        state.annealed = 1.0
        self.start_stage()
        if self.train.averaging != "none":
            self.optimizer.start_averaging()

    def _evaluate(self, split: str) -> float:
        """Return the perplexity of a split, which the first rank computes."""
        return self.ranks.broadcast(self.task.evaluate(split).perplexity if self.ranks.first else math.nan)


def new_task(recipe: AnyRecipe, corpus: Corpus | DialogCorpus, device: torch.device, ranks: Ranks) -> Task:
    """Return the task of a recipe, with a new model."""
    if isinstance(recipe, DialogRecipe):
        if ranks.size > 1:
            raise UserError("dialog models train in one process: start the command without torchrun.")
        assert isinstance(corpus, DialogCorpus)
        return DialogTask(recipe, corpus, device)
    assert isinstance(corpus, Corpus)
    return LanguageTask(recipe, corpus, device, ranks)
