"""An unbiased sample of the rows that the backward pass of `mos_nll` visits.

Row (n, k) contributes to the gradients of h, W and b in proportion to its responsibility r, and most responsibilities
are small. A row with r >= eps is always kept, with weight r. A row with r < eps is kept with probability q = r / eps,
with weight r / q = eps. Either way the expected weight is r, so the expected gradient is the exact one.

The small rows of a token are sampled together (systematic sampling). Their q are intervals, laid end to end on a line
from 0, and a row is kept if its interval contains one of the points 1 - u, 2 - u, ..., where u is one uniform random
number per token. A token thus keeps its expected number of rows, rounded up or down; for eps = 1 that is one row.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class RowSample(NamedTuple):
    """The random choice of rows for N tokens. The same sample and responsibilities give the same rows."""

    eps: float
    draws: Tensor  # (N,) uniform random numbers, at least 0 and below 1

    @classmethod
    def draw(cls, eps: float, h: Tensor) -> "RowSample":
        """Draw a sample for the tokens of h (N, K, D). Every replay of a CUDA graph advances torch's generator."""
        return cls(eps, torch.rand(len(h), device=h.device))

    def of(self, tokens: slice | Tensor) -> "RowSample":
        """Return the sample of some of the tokens."""
        return RowSample(self.eps, self.draws[tokens])

    def weights(self, r: Tensor) -> Tensor:
        """Return the weights of the rows, (N, K): 0 for those that are dropped."""
        small = r < self.eps  # not if NaN, which must reach the gradients
        ends = torch.where(small, r / self.eps, 0.0).cumsum(1) + self.draws[:, None]  # of the intervals, shifted by u
        points = ends.floor()  # how many points lie before each end
        hit = points.diff(dim=1, prepend=torch.zeros_like(points[:, :1])) > 0
        return torch.where(small, hit * self.eps, r)
