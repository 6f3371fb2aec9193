"""Singular values and numerical rank of a tall matrix that is never stored whole (section 3.3 of the paper).

Rows arrive in blocks and are reduced by QR: stacking a block under the current R factor and taking R again keeps
R^T R = A^T A. Forming A^T A itself would square the condition number and lose the small singular values.

Shapes: A is (T, V), T tokens and V words; R is at most (V, V). Everything is float64: the round-off of a float32
forward pass alone looks like full rank.
"""

import math

import torch
from torch import Tensor

from highrank.analysis.factors import r_factor, svdvals

# LAPACK and cuSOLVER count elements in 32 bits in places.
MAX_ELEMENTS = 2**31 - 1


class RowReducer:
    """Reduce a matrix A, given in row blocks, to a small factor with the same singular values.

    Rows are collected until there are V of them (or as many as LAPACK can address) and then join R in one QR.
    Factoring R again for every small block would cost V / block times more.
    """

    def __init__(self) -> None:
        self._pending: list[Tensor] = []  # R first, once there is one
        self._pending_rows = 0
        self.rows = 0

    def add(self, block: Tensor) -> None:  # (t, V)
        """Append rows to A."""
        if block.dtype != torch.float64:
            raise TypeError(f"rank needs float64 from a float64 forward pass, got {block.dtype}")
        self.rows += len(block)
        self._pending.append(block)
        self._pending_rows += len(block)
        if self._pending_rows >= stack_rows(block.shape[1]):
            self._reduce()

    def factor(self) -> Tensor:
        """Return a matrix of at most V rows with A's singular values."""
        if not self._pending:
            raise ValueError("no rows were added")
        if len(self._pending) > 1 or self._pending_rows > self._pending[0].shape[1]:
            self._reduce()
        return self._pending[0]

    def _reduce(self) -> None:
        stacked = torch.cat(self._pending)
        self._pending.clear()  # QR makes a copy of its own; freeing the blocks keeps two stacks in memory, not three
        if len(stacked) > stacked.shape[1]:
            stacked = r_factor(stacked)
        self._pending.append(stacked)
        self._pending_rows = len(stacked)


def stack_rows(columns: int) -> int:
    """Return how many rows, including those of R, enter one QR."""
    return max(columns + 1, min(2 * columns, MAX_ELEMENTS // columns))


def singular_values(matrix: Tensor) -> Tensor:
    """Return all singular values, largest first, by bidiagonalisation."""
    if matrix.shape[0] < matrix.shape[1]:  # LAPACK is several times faster on the small square that QR leaves
        matrix = r_factor(matrix.mT)
    return svdvals(matrix)


def press_tolerance(s_max: float, rows: int, columns: int) -> float:
    """Return the round-off that Press et al. expect in the singular values: 0.5 sqrt(m + n + 1) s_max eps."""
    return 0.5 * math.sqrt(rows + columns + 1) * s_max * torch.finfo(torch.float64).eps


def numerical_rank(singular_values: Tensor, shape: tuple[int, ...], size: float | None = None) -> int:
    """Count the singular values above the round-off of numbers of this size, by default of the largest value."""
    tolerance = press_tolerance(size or singular_values.max().item(), *shape)
    return int((singular_values > tolerance).sum())


def effective_rank(singular_values: Tensor) -> float:
    """Return exp(-sum_i p_i log p_i) with p_i = s_i / sum_j s_j (Roy and Vetterli 2007).

    It lies between 1 and the rank: the number of equal singular values that have the same entropy.
    """
    p = singular_values / singular_values.sum()
    return torch.special.entr(p).sum().exp().item()
