"""Matrix factorisations that are checked, and repeated if they are wrong.

On an H200 that several processes shared, 2 of 76 analyses gave NaN from finite matrices. The wrong numbers came from a
QR or an SVD on the GPU; we do not know which, nor why. Multiplying by one vector x reveals a wrong factor of any kind.
"""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from highrank.errors import UserError

ATTEMPTS = 3
# On a GPU, torch's default (Jacobi sweeps) is made for small matrices; bidiagonalisation is faster for large ones.
SVD_DRIVER = "gesvd"

Factors = TypeVar("Factors")


def reduced_qr(a: Tensor) -> tuple[Tensor, Tensor]:
    """Return Q (rows, n) and R (n, columns), n = min(rows, columns)."""
    x = _probe(a)
    return _factor_and_check(a, lambda: torch.linalg.qr(a), lambda qr: qr.Q @ (qr.R @ x) - a @ x)


def r_factor(a: Tensor) -> Tensor:
    """Return R alone, which has the singular values of A: R x is as long as A x."""
    x = _probe(a)
    return _factor_and_check(a, lambda: torch.linalg.qr(a, mode="r").R, lambda r: (r @ x).norm() - (a @ x).norm())


def svd(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return U and V^T, both square, and the singular values between them."""
    x = _probe(a)
    n = min(a.shape)
    return _factor_and_check(a, lambda: torch.linalg.svd(a), lambda f: f.U[:, :n] @ (f.S * (f.Vh[:n] @ x)) - a @ x)


def svdvals(a: Tensor) -> Tensor:
    """Return all singular values, largest first: their vector is as long as A, read as a vector."""
    driver = SVD_DRIVER if a.is_cuda else None
    return _factor_and_check(a, lambda: torch.linalg.svdvals(a, driver=driver), lambda values: values.norm() - a.norm())


def _probe(a: Tensor) -> Tensor:
    """Return a vector of length 1 that has no zeros."""
    x = torch.arange(a.shape[1], device=a.device, dtype=a.dtype).cos()
    return x / x.norm()


def _factor_and_check(a: Tensor, factor: Callable[[], Factors], error: Callable[[Factors], Tensor]) -> Factors:
    """Return the first factors whose error is round-off."""
    round_off = torch.finfo(a.dtype).eps ** 0.5 * a.norm()
    if not round_off.isfinite():
        raise UserError("a matrix to be factored is not finite: the weights are damaged, or the training diverged.")
    for _ in range(ATTEMPTS):
        factors = factor()
        if error(factors).norm() <= round_off:
            return factors
    raise ArithmeticError(f"{ATTEMPTS} factorisations of one matrix on {a.device} were all wrong")
