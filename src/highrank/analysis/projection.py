"""A random projection of the columns, for vocabularies whose V x V factor does not fit.

    B = A W,  W (V, d) with independent N(0, 1/d) entries, so that E[B B^T] = A A^T

B is (T, d) and goes through the same row reduction. What it can and cannot say:

Rank. rank(B) <= rank(A) always, and s_i(B) <= ||W|| s_i(A). So the number of s_i(B) above ||W|| times A's tolerance
is a lower bound on A's numerical rank; it ends at d. ||W|| is at most (sqrt(V) + sqrt(d) + 6) / sqrt(d) but for a
chance of exp(-18), and A's largest singular value, which the tolerance needs, is at most its Frobenius norm.

Spectrum. The squares l_i = s_i(B)^2 sum to those of A on average, but one by one they are shifted, to first order
(Lawley 1956), by the larger values, which take up i - 1 of the d directions, and by the tail that is folded
onto them:

    E[l_i] ~ s_i^2 (1 - (i - 1) / d) + (sum_{j > i} s_j^2) / d

`top_of_spectrum` solves this for s_i and keeps the values with (i - 1 + tail / l_i) / d <= 1/4; what lies below
cannot be seen through d columns. A value kept has a random error of about 1 / sqrt(2 d), and is right on average to a
few percent where values are not crowded together; `tests/analysis/test_projection.py` holds it to that.
"""

import math

import torch
from torch import Tensor

from highrank.analysis.rank import press_tolerance

MAX_SHIFT = 0.25


class Projection:
    """`apply` projects row blocks; Frobenius' norm of what it has seen is kept."""

    def __init__(self, columns: int, size: int, seed: int, device: torch.device) -> None:
        if not 1 <= size < columns:
            raise ValueError(f"a projection of {columns} columns needs a size below that, got {size}")
        self.columns, self.size = columns, size
        # Drawn on the CPU, so that every machine draws the same.
        matrix = torch.randn(columns, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        self.matrix = matrix.div_(math.sqrt(size)).to(device)  # (V, d)
        self._squares = torch.zeros((), dtype=torch.float64, device=device)

    def apply(self, block: Tensor) -> Tensor:  # (t, V) -> (t, d)
        self._squares += block.square().sum()
        return block @ self.matrix

    def tolerance(self, rows: int) -> float:
        """Singular values of B above this prove as many of A above its own tolerance."""
        norm = (math.sqrt(self.columns) + math.sqrt(self.size) + 6) / math.sqrt(self.size)
        return norm * press_tolerance(self._squares.sqrt().item(), rows, self.columns)


def top_of_spectrum(values: Tensor) -> Tensor:
    """Estimates of A's largest singular values from all of B's, as far down as they can be seen."""
    d = len(values)
    squares = values.square()
    tail = squares.flip(0).cumsum(0).flip(0) - squares
    before = torch.arange(d, dtype=values.dtype, device=values.device)
    seen = (before + tail / squares.clamp(min=torch.finfo(values.dtype).tiny)) / d <= MAX_SHIFT
    k = int(seen.long().cumprod(0).sum())
    corrected = ((squares - tail / d) / (1 - before / d))[:k]
    # Noise may put neighbours out of order; a spectrum falls.
    return corrected.clamp(min=0).sqrt().sort(descending=True).values
