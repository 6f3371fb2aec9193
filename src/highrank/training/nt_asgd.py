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
from collections.abc import Iterable, Iterator

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
        self.n_averaged += apply
        share = 1 / self.n_averaged.clamp(min=1)
        averaged_sgd_(self.parameters, grads, self.averages, 1 - lr * self.weight_decay, lr * grad_scale, share, apply)

    def zero_grad(self) -> None:
        for p in self.parameters:
            p.grad = None

    @contextlib.contextmanager
    def averaged_weights(self) -> Iterator[None]:
        """Within it the parameters hold their averages (or stay as they are before averaging starts)."""
        if self.averages is None:
            yield
            return
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        assert self.averages is not None
        for average, p in zip(self.averages, self.parameters, strict=True):
            kept = p.detach().clone()
            p.copy_(average)
            average.copy_(kept)


def is_worse(loss: float, history: list[float], window: int) -> bool:
    """The non-monotone rule: `loss` is above the best of `history` without its last `window` entries.

    `history` holds the losses of earlier epochs, not `loss` itself. So nothing can trigger in the first `window` + 1
    epochs, and later a loss must lose against a best that is more than `window` epochs old.
    """
    return len(history) > window and loss > min(history[:-window])
