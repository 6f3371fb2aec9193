"""QR factorisations that are checked, and repeated if they are wrong.

On an H200 that several processes shared, 2 of 76 analyses gave NaN from finite matrices. All that the wrong numbers had
in common was a QR on the GPU. One vector x reveals a wrong factor, whatever the cause: Q (R x) must be A x, and R x as
long as A x.
"""

import torch
from torch import Tensor

ATTEMPTS = 3


def reduced_qr(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return Q (rows, n) and R (n, columns) of a matrix, n = min(rows, columns)."""
    x, product, tolerance = _probe(matrix)
    for _ in range(ATTEMPTS):
        q, r = torch.linalg.qr(matrix)
        if (q @ (r @ x) - product).norm() <= tolerance:
            return q, r
    raise _error(matrix)


def r_factor(matrix: Tensor) -> Tensor:
    """Return R alone, which has the singular values of the matrix."""
    x, product, tolerance = _probe(matrix)
    for _ in range(ATTEMPTS):
        r: Tensor = torch.linalg.qr(matrix, mode="r").R
        if ((r @ x).norm() - product.norm()).abs() <= tolerance:
            return r
    raise _error(matrix)


def _probe(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return a vector x, A x, and a bound on the round-off of |A x|."""
    x = torch.arange(matrix.shape[1], device=matrix.device, dtype=matrix.dtype).cos()
    return x, matrix @ x, torch.finfo(matrix.dtype).eps ** 0.5 * matrix.norm() * x.norm()


def _error(matrix: Tensor) -> ArithmeticError:
    if not matrix.isfinite().all():
        return ArithmeticError("a matrix to be factored is not finite: are the weights and the log-probabilities?")
    return ArithmeticError(f"{ATTEMPTS} QR factorisations of one matrix on {matrix.device} were all wrong")
