"""The interface between training and what it trains: `language.py` and `dialog.py` implement it.

A task knows its model, its data and its loss. Everything else, from the update to the stages and checkpoints, is the
same for every task.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor, nn

from highrank.evaluation.perplexity import Evaluation
from highrank.training.precision import Precision
from highrank.training.state import TrainingState


class Minibatch(NamedTuple):
    """The data of one update."""

    tensors: tuple[Tensor, ...]  # the arguments of `Task.backward`
    end: int  # the position in the pass after this update
    lr_factor: float = 1.0


class Backward(NamedTuple):
    """The result of a backward pass, on the device."""

    loss: Tensor  # 0-dim float64: the mean in nats per token, without penalties; this rank's share in it
    tokens: Tensor | int  # in that mean, of all ranks
    carried: Tensor  # the new value of `Task.carried`


class Task(Protocol):
    precision: Precision
    carried: Tensor  # hidden states that each update passes on to the next, if any; zero at the start of a pass

    @property
    def model(self) -> nn.Module: ...

    @property
    def pass_length(self) -> int:
        """The position at which a pass over the training data ends."""

    def start_stage(self, stage: int) -> None:
        """Change what differs between the stages of a recipe."""

    def minibatches(self, state: TrainingState, rng: np.random.Generator) -> Iterator[Minibatch]:
        """Yield the remaining data of the pass, from position `state.row` on."""

    def backward(self, *tensors: Tensor) -> Backward:
        """Add the gradient of the loss, times `precision.loss_scale`, to the gradients of the model.

        It must not wait for the device or branch on a computed value, because a CUDA graph may hold it.
        """

    def repeats(self, *tensors: Tensor) -> bool:
        """Return whether tensors of these shapes occur often enough to capture a CUDA graph for them."""

    def validate(self) -> float:
        """Return the validation loss, in nats per token, computed in the precision of training."""

    def evaluate(self, split: str) -> Evaluation:
        """Evaluate a split exactly: in float32, and for a language model as one stream."""
