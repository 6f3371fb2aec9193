"""SGD that turns into averaged SGD by a non-monotone rule (NT-ASGD, Merity et al. 2017).

    theta <- theta - lr (grad + weight_decay theta)
    average <- average + (theta - average) / n        once averaging is on, n = 1, 2, ... updates since then

Evaluation uses the average; the gradient is always taken at theta. The update happens on the device from tensors alone,
so that it can be part of a CUDA graph, and an update that is not finite can be left out without asking the host.

    # differs from the paper's code: torch.optim.ASGD sets its step size and averaging weight after each update, for
    # the next one. So it applies the previous window's learning rate, and its average leaves out the first iterate.
    # Here every window's own length scales its own update, and the average is the mean of all iterates.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from highrank.ops.averaged_sgd import averaged_sgd_


class NTASGD:
    """The update and the average of a list of parameters. Plain SGD until `start_averaging`."""

    def __init__(self, parameters: Iterable[nn.Parameter], weight_decay: float = 0.0) -> None:
        self.parameters: list[Tensor] = list(parameters)
        self.weight_decay = weight_decay
        self.averages: list[Tensor] | None = None
        self.generation = 0  # of the averages: counts the times that they were made anew
        # Updates since the averages were made; meaningless before.
        self.n_averaged = torch.zeros((), dtype=torch.float64, device=self.parameters[0].device)

    @property
    def averaging(self) -> bool:
        return self.averages is not None

    def start_averaging(self) -> None:
        self.averages = [p.detach().clone() for p in self.parameters]
        self.generation += 1
        self.n_averaged.zero_()

    @torch.no_grad()
    def step(self, lr: Tensor, grad_scale: Tensor, apply: Tensor) -> None:
        """theta -= lr (grad_scale grad + weight_decay theta), or nothing where `apply` (0-dim, bool) is false."""
        grads = [p.grad for p in self.parameters if p.grad is not None]
        assert len(grads) == len(self.parameters), "every parameter takes part in the loss"
        keep, rate = 1 - lr * self.weight_decay, lr * grad_scale
        share = self._share(self.n_averaged, apply)
        averaged_sgd_(self.parameters, grads, self.averages, keep, rate, share, apply, *self._second(apply))

    def _share(self, count: Tensor, apply: Tensor) -> Tensor:
        """Count an update; what the newest weights then weigh in an average of so many."""
        count += apply
        return 1 / count.clamp(min=1)

    def _second(self, apply: Tensor) -> tuple[list[Tensor] | None, Tensor | None]:
        """Averages that are kept beside the first, and what the newest weights weigh in them."""
        return None, None

    def zero_grad(self) -> None:
        for p in self.parameters:
            p.grad = None

    def state(self) -> list[Tensor]:
        """Every tensor but the parameters that `step` changes."""
        return [self.n_averaged, *(self.averages or [])]

    def evaluate(self, loss: Callable[[], float]) -> float:
        """`loss` of the weights that stand for the run: `averaged_weights`."""
        with self.averaged_weights():
            return loss()

    def about(self) -> dict[str, Any]:
        """What metrics.jsonl should know of an epoch's averages."""
        return {}

    @contextlib.contextmanager
    def averaged_weights(self) -> Iterator[None]:
        """Within it the parameters hold their averages (or stay as they are before averaging starts)."""
        with self._swapped(self._standing()):
            yield

    def _standing(self) -> list[Tensor] | None:
        """The averages that stand for the run; None for the weights themselves."""
        return self.averages

    @contextlib.contextmanager
    def _swapped(self, others: list[Tensor] | None) -> Iterator[None]:
        """Within it parameters and `others` have changed places."""
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
            kept = p.detach().clone()
            p.copy_(other)
            other.copy_(kept)


def is_worse(loss: float, history: list[float], window: int) -> bool:
    """The non-monotone rule: `loss` is above the best of `history` without its last `window` entries.

    `history` holds the losses of earlier epochs, not `loss` itself. So nothing can trigger in the first `window` + 1
    epochs, and later a loss must lose against a best that is more than `window` epochs old.
    """
    return len(history) > window and loss > min(history[:-window])
