"""One update: backward, clipping, the optimiser and bookkeeping, all on the device.

The code never waits for the device and never branches on a computed value. If the loss or the gradient is not finite,
masks skip the update, zero the carried hidden states and count the update. The same lines therefore run eagerly on a
CPU and inside a CUDA graph, and the host may read the totals at any time.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from highrank.recipes.recipe import ScheduleSpec
from highrank.training.nt_asgd import NTASGD
from highrank.training.ranks import ALONE, Ranks
from highrank.training.task import Backward, Task


class Totals(NamedTuple):
    """Sums since the last read, and the state after the last update."""

    loss_sum: float  # nats
    tokens: int
    skipped: int
    skipped_in_a_row: int  # including updates before the last read
    last_loss: float  # nats per token


class Step:
    """A callable that updates a task's model on the tensors of one minibatch."""

    def __init__(
        self, task: Task, optimizer: NTASGD, train: ScheduleSpec, device: torch.device, ranks: Ranks = ALONE
    ) -> None:
        self.ranks = ranks
        self.task = task
        self.optimizer = optimizer
        self.train = train
        self.device = device
        self._lr = torch.zeros((), device=device)
        # loss sum, tokens, skipped, skipped in a row, last loss
        self._totals = torch.zeros(5, dtype=torch.float64, device=device)

    def __call__(self, tensors: tuple[Tensor, ...], lr: float) -> None:
        self._lr.fill_(lr)
        self._update(*tensors)

    @property
    def skipped_in_a_row(self) -> int:
        return int(self._totals[3].item())

    @skipped_in_a_row.setter
    def skipped_in_a_row(self, count: int) -> None:
        self._totals[3] = count

    def read(self) -> Totals:
        """Return the totals since the last read, after waiting for the device."""
        loss_sum, tokens, skipped, in_a_row, last = self._totals.tolist()
        self._totals[:3] = 0
        return Totals(loss_sum, int(tokens), int(skipped), int(in_a_row), last)

    def discard_graphs(self) -> None:
        """Compute the next update with the task's current settings. An eager step always does (see `graph.py`)."""

    def _update(self, *tensors: Tensor) -> None:
        self.task.model.train()
        self.optimizer.zero_grad()
        result = self.task.backward(*tensors)
        self._sum_over_ranks(result.loss)
        self._apply(result)

    def _sum_over_ranks(self, loss: Tensor) -> None:
        """Add up the gradients and the loss of all ranks, in place."""
        if not self.ranks.connected:
            return
        grads = []
        for p in self.optimizer.parameters:
            assert p.grad is not None, "every parameter takes part in the loss"
            p.grad = p.grad.contiguous()
            grads.append(p.grad)
        assert len({grad.data_ptr() for grad in grads}) == len(grads), "two gradients share memory"
        self.ranks.sum_([*grads, loss])

    @torch.no_grad()
    def _apply(self, result: Backward) -> None:
        # Small kernels add up in a graph, so scalars are combined into as few operations as possible.
        loss, tokens, carried = result
        scale = self.task.precision.loss_scale
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.task.model.parameters() if p.grad is not None])
        finite = (norm + loss).abs() < math.inf  # one comparison rejects both inf and NaN
        # The gradients are multiplied by `scale`. Remove it and clip: shrink = min(1, clip / (norm / scale)) / scale.
        shrink = (self.train.clip / (norm + 1e-6 * scale)).clamp(max=1 / scale)
        self.optimizer.step(self._lr, shrink, finite)

        self.task.carried.copy_(torch.where(finite, carried, 0.0))
        counted = finite.double()
        self._totals[:3] += torch.stack([torch.where(finite, loss, 0.0) * tokens, counted * tokens, 1 - counted])
        self._totals[3:] = torch.stack([(self._totals[3] + 1) * (1 - counted), loss])
