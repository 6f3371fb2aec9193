"""A random projection of the columns, for vocabularies whose V x V factor does not fit into memory.

    B = A W,  W (V, d) with independent N(0, 1/d) entries, so that E[B B^T] = A A^T

B is (T, d) and goes through the same row reduction.

Rank: a lower bound. rank(B) <= rank(A) and s_i(B) <= ||W|| s_i(A), so the number of s_i(B) above ||W|| times A's
tolerance is at most A's numerical rank; it cannot exceed d. ||W|| is at most (sqrt(V) + sqrt(d) + 6) / sqrt(d), except
with probability exp(-18). The tolerance needs A's largest singular value, which is at most its Frobenius norm.

Spectrum: its top. The squares l_i = s_i(B)^2 sum to those of A on average. To first order (Lawley 1956), each one is
shifted by the larger values, which occupy i - 1 of the d directions, and by the tail folded onto it:

    E[l_i] ~ s_i^2 (1 - (i - 1) / d) + (sum_{j > i} s_j^2) / d

`top_of_spectrum` solves this for s_i and returns the values with (i - 1 + tail / l_i) / d <= 1/4; smaller ones cannot
be resolved with d columns. Each has a random error of about 1 / sqrt(2 d) and a bias of a few percent where values are
not close together; `tests/analysis/test_projection.py` checks both.
"""

import math

import torch
from torch import Tensor

from highrank.analysis.rank import press_tolerance
from highrank.errors import UserError

MAX_SHIFT = 0.25


class Projection:
    """Project row blocks with one random matrix, and accumulate the Frobenius norm of the blocks."""

    def __init__(self, columns: int, size: int, seed: int, device: torch.device) -> None:
        if not 1 <= size < columns:
            raise UserError(f"the projection must have between 1 and {columns - 1:,} columns, got {size:,}.")
        self.columns = columns
        self.size = size
        # Drawn on the CPU, so that every device uses the same matrix.
        matrix = torch.randn(columns, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        self.matrix = matrix.div_(math.sqrt(size)).to(device)  # (V, d)
        self._squares = torch.zeros((), dtype=torch.float64, device=device)

    def apply(self, block: Tensor) -> Tensor:  # (t, V) -> (t, d)
        self._squares += block.square().sum()
        return block @ self.matrix

    def tolerance(self, rows: int) -> float:
        """Return a threshold: singular values of B above it prove as many of A above A's own tolerance."""
        norm = (math.sqrt(self.columns) + math.sqrt(self.size) + 6) / math.sqrt(self.size)
        return norm * press_tolerance(self._squares.sqrt().item(), rows, self.columns)


def top_of_spectrum(values: Tensor) -> Tensor:
    """Estimate A's largest singular values from all of B's, as far down as d columns resolve them."""
    d = len(values)
    squares = values.square()
    tail = squares.flip(0).cumsum(0).flip(0) - squares
    larger = torch.arange(d, dtype=values.dtype, device=values.device)  # how many values are larger: i - 1
    resolved = (larger + tail / squares.clamp(min=torch.finfo(values.dtype).tiny)) / d <= MAX_SHIFT
    k = max(1, int(resolved.long().cumprod(0).sum()))
    corrected = ((squares - tail / d) / (1 - larger / d))[:k]
    # Noise may swap neighbours, but a spectrum is sorted.
    return corrected.clamp(min=0).sqrt().sort(descending=True).values
