"""SGD that switches to averaged SGD by a non-monotone rule (NT-ASGD, Merity et al. 2017).

    theta   <- theta - lr (grad + weight_decay theta)
    average <- average + (theta - average) / n        once averaging has started, n = 1, 2, ... updates since then

Evaluation uses the average; gradients are always taken at theta. The update reads only tensors on the device, so a
CUDA graph can hold it, and an update that is not finite is skipped without a round trip to the host. With Adam, grad
stands for Adam's direction; the rest is the same.

    # differs from the paper's code: torch.optim.ASGD sets its step size and averaging weight after each update, for
    # the next one. It therefore applies the previous window's learning rate, and its average omits the first iterate.
    # Here each window's own length scales its own update, and the average is the mean of all iterates.
"""

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from highrank.ops.averaged_sgd import averaged_sgd_
from highrank.training.adam import Adam


class NTASGD:
    """Updates parameters and their average. It is plain SGD until `start_averaging` is called."""

    def __init__(self, parameters: dict[str, nn.Parameter], weight_decay: float = 0.0, *, adam: bool = False) -> None:
        self.names = list(parameters)
        self.parameters: list[Tensor] = list(parameters.values())
        self.weight_decay = weight_decay
        self.adam = Adam(self.parameters) if adam else None
        self.averages: list[Tensor] | None = None
        self.generation = 0  # how often `averages` was replaced by new tensors
        # The number of updates in the averages.
        self.n_averaged = torch.zeros((), dtype=torch.float64, device=self.parameters[0].device)

    @property
    def averaging(self) -> bool:
        return self.averages is not None

    def start_averaging(self) -> None:
        """Start a new average at the current weights."""
        self.averages = [p.detach().clone() for p in self.parameters]
        self.generation += 1
        self.n_averaged.zero_()

    @torch.no_grad()
    def step(self, lr: Tensor, grad_scale: Tensor, apply: Tensor) -> None:
        """Subtract lr (grad_scale grad + weight_decay theta), or do nothing where `apply` (0-dim bool) is false."""
        grads = [p.grad for p in self.parameters if p.grad is not None]
        assert len(grads) == len(self.parameters), "every parameter takes part in the loss"
        keep = 1 - lr * self.weight_decay
        rate = lr * grad_scale
        if self.adam is not None:
            grads = self.adam.directions(grads, grad_scale, apply)
            rate = lr
        share = self._count(self.n_averaged, apply)
        averaged_sgd_(self.parameters, grads, self.averages, keep, rate, share, apply, *self._second_average(apply))

    def zero_grad(self) -> None:
        """Drop all gradients."""
        for p in self.parameters:
            p.grad = None

    def state(self) -> dict[str, Tensor]:
        """Return every tensor that the optimiser changes, by name and not copied, except the parameters."""
        state = {"n_averaged": self.n_averaged}
        if self.averages is not None:
            state |= self._by_name("averages", self.averages)
        if self.adam is not None:
            state |= {"t": self.adam.t} | self._by_name("m", self.adam.m) | self._by_name("v", self.adam.v)
        return state

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore a state, after the parameters: averages that are missing in the state start at them.

        In a new optimiser, counters and moments that are missing start at zero.
        """
        if self.averaging or any(name.startswith("averages/") for name in state):
            self.start_averaging()
        for name, tensor in self.state().items():
            if name in state:
                tensor.copy_(state[name])

    def _by_name(self, kind: str, tensors: list[Tensor]) -> dict[str, Tensor]:
        """Return one tensor per parameter, by name: averages/head.weight, ..."""
        return {f"{kind}/{name}": tensor for name, tensor in zip(self.names, tensors, strict=True)}

    def evaluate(self, loss: Callable[[], float]) -> float:
        """Return `loss()` for the weights that represent the run: the averages, once there are any."""
        with self.averaged_weights():
            return loss()

    @property
    def uses_averages(self) -> bool:
        """Whether the averages represent the run, rather than the weights themselves."""
        return self.averaging

    @property
    def average_length(self) -> int | None:
        """The number of updates in the weights that represent the run, where that number adapts."""
        return None

    @contextlib.contextmanager
    def averaged_weights(self) -> Iterator[None]:
        """Let the parameters hold the weights that represent the run for the duration of the block."""
        with self._swapped(self.averages if self.uses_averages else None):
            yield

    def _count(self, count: Tensor, apply: Tensor) -> Tensor:
        """Add the update to `count`, and return the weight of the newest iterate in an average over that many."""
        count += apply
        return 1 / count.clamp(min=1)

    def _second_average(self, apply: Tensor) -> tuple[list[Tensor] | None, Tensor | None]:
        """Return a second average to update, with the weight of the newest iterate in it. NT-ASGD has none."""
        return None, None

    @contextlib.contextmanager
    def _swapped(self, others: list[Tensor] | None) -> Iterator[None]:
        """Exchange the parameters with `others` for the duration of the block."""
        if others is None:
            yield
            return
        self._swap(others)
        try:
            yield
        finally:
            self._swap(others)

    @torch.no_grad()
    def _swap(self, others: list[Tensor]) -> None:
        for other, p in zip(others, self.parameters, strict=True):
            old = p.detach().clone()
            p.copy_(other)
            other.copy_(old)


def is_worse(loss: float, history: list[float], window: int) -> bool:
    """Apply the non-monotone rule: is `loss` above the best loss of more than `window` epochs ago?

    `history` holds the losses of earlier epochs, without `loss`. The rule compares with `history` minus its last
    `window` entries, so it cannot trigger in the first `window` + 1 epochs.
    """
    return len(history) > window and loss > min(history[:-window])
