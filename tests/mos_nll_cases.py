"""Problems for the tests of `mos_nll`, and the comparison of an implementation with the reference in float64."""

import torch
from torch import Tensor

from highrank.ops.mos_nll import kernel, reference
from highrank.ops.mos_nll.kernel import plan
from highrank.ops.mos_nll.sampling import RowSample
from triton_interpreter import DEVICE

Shape = tuple[int, int, int, int]  # N, K, D, V
ALIGNED = (16, 4, 32, 64)
RAGGED = (7, 3, 37, 101)
PTB = (840, 15, 280, 10_000)
UNEVEN = torch.linspace(-1, 2, RAGGED[0], dtype=torch.float64)  # upstream gradients
# Small blocks and slabs, so that a small problem has several of each.
SMALL = plan.Config(16, 32, 16, num_warps=4, num_stages=2, tma=False, flatten=True, programs=1, scratch_bytes=2048)


def make(shape: Shape = RAGGED, scale: float = 1.0) -> tuple[list[Tensor], Tensor]:
    """Return h, log_pi, weight and bias in float64, and targets; a larger `scale` gives surer components."""
    n, k, d, v = shape
    generator = torch.Generator().manual_seed(0)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    inputs = [normal(n, k, d).tanh(), (2 * normal(n, k)).log_softmax(-1), scale * normal(v, d) / d**0.5, normal(v)]
    return inputs, torch.randint(v, (n,), generator=generator)


def sample(eps: float, n: int = RAGGED[0], device: str = "cpu") -> RowSample:
    """Return the same sample at every call."""
    return RowSample(eps, torch.rand(n, generator=torch.Generator().manual_seed(1)).to(device))


def values_and_gradients(
    function, inputs, targets, upstream=None, *, dtype=None, device=None, **options
) -> list[Tensor]:
    """Return the loss and the gradients of the inputs that are not None; by default, `upstream` is that of a mean."""
    leaves = [None if x is None else x.detach().to(device=device, dtype=dtype).requires_grad_() for x in inputs]
    nll = function(*leaves, targets.to(device=device), **options)
    upstream = torch.full((len(nll),), 1 / max(1, len(nll))) if upstream is None else upstream
    gradients = torch.autograd.grad(nll, [x for x in leaves if x is not None], upstream.to(nll))
    return [nll.detach(), *gradients]


def assert_as_exact(ours: list[Tensor], plain: list[Tensor], truth: list[Tensor], floor: int = 4) -> None:
    """Assert an error of at most twice that of the same-dtype reference, plus `floor` units of round-off."""
    for i, (x, y, true) in enumerate(zip(ours, plain, truth, strict=True)):
        error = (x.double() - true).norm()
        allowed = (y.double() - true).norm()
        assert x.isfinite().all()
        assert error <= 2 * allowed + floor * torch.finfo(y.dtype).eps * true.norm(), (
            f"output {i}: {error:.3g} against {allowed:.3g} of the reference"
        )


def check_kernels(inputs, targets, dtype: torch.dtype, floor: int = 4, configs=None, **options) -> None:
    """Compare the kernels with the reference, for upstream gradients of both signs and some zeros."""
    n = len(targets)
    inputs = [x.to(dtype).double() for x in inputs]
    upstream = torch.linspace(-1, 2, n, dtype=torch.float64) / n
    upstream[::5] = 0
    arguments = (inputs, targets, upstream)
    options["device"] = DEVICE
    truth = values_and_gradients(reference.mos_nll, *arguments, **options)
    plain = values_and_gradients(reference.mos_nll, *arguments, dtype=dtype, **options)
    ours = values_and_gradients(kernel.mos_nll, *arguments, dtype=dtype, configs=configs, **options)
    assert_as_exact(ours, plain, truth, floor)
