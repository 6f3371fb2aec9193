"""Singular values and numerical rank of a tall matrix of log-probabilities, never held whole (section 3.3).

Rows arrive in blocks and are reduced by QR: stacking a block under the R factor so far and taking R again keeps
R^T R = A^T A without forming it, which would square the condition number and hide the small singular values.

Shapes: A is (T, V), T tokens and V words; R is at most (V, V). Everything in float64: round-off of a float32 forward
pass alone looks like full rank.
"""

import math

import torch
from torch import Tensor

from highrank.analysis.rows import carrying_state, windows
from highrank.models.language_model import LanguageModel

# torch's default on a GPU, Jacobi sweeps, is made for small matrices; bidiagonalisation is the quick one for large.
SVD_DRIVER = "gesvd"
# LAPACK and cuSOLVER count elements in 32 bits in places.
MAX_ELEMENTS = 2**31 - 1


class RowReducer:
    """Feed it row blocks of A; `singular_values` are A's.

    Rows wait until there are V of them (or as many as LAPACK can address), and then join R in one QR: factoring R
    again with every small block would cost V / block times more.
    """

    def __init__(self) -> None:
        self._waiting: list[Tensor] = []  # R first, once there is one
        self._waiting_rows = 0
        self.rows = 0

    def add(self, block: Tensor) -> None:  # (t, V)
        if block.dtype != torch.float64:
            raise TypeError(f"rank needs float64 from a float64 forward pass, got {block.dtype}")
        self.rows += len(block)
        self._waiting.append(block)
        self._waiting_rows += len(block)
        if self._waiting_rows >= stack_rows(block.shape[1]):
            self._reduce()

    def factor(self) -> Tensor:
        """A matrix of at most V rows with A's singular values."""
        if not self._waiting:
            raise ValueError("no rows were added")
        if len(self._waiting) > 1 or self._waiting_rows > self.shape[1]:
            self._reduce()
        return self._waiting[0]

    def singular_values(self) -> Tensor:
        """(min(T, V),), largest first."""
        return singular_values(self.factor())

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows, self._waiting[0].shape[1] if self._waiting else 0

    def _reduce(self) -> None:
        stacked = torch.cat(self._waiting)
        self._waiting.clear()  # before QR makes its own copy: two stacks at a time, not three
        if len(stacked) > stacked.shape[1]:
            stacked = torch.linalg.qr(stacked, mode="r").R
        self._waiting.append(stacked)
        self._waiting_rows = len(stacked)


def stack_rows(columns: int) -> int:
    """How many rows, R's included, one QR takes in."""
    return max(columns + 1, min(2 * columns, MAX_ELEMENTS // columns))


def singular_values(matrix: Tensor) -> Tensor:
    """All of them, largest first, by bidiagonalisation."""
    if matrix.shape[0] < matrix.shape[1]:  # LAPACK is several times quicker on the small square that QR leaves
        matrix = torch.linalg.qr(matrix.mT, mode="r").R
    return torch.linalg.svdvals(matrix, driver=SVD_DRIVER if matrix.is_cuda else None)


def press_tolerance(s_max: float, rows: int, columns: int) -> float:
    """Press et al.'s expected round-off of the singular values: 0.5 sqrt(m + n + 1) s_max eps."""
    return 0.5 * math.sqrt(rows + columns + 1) * s_max * torch.finfo(torch.float64).eps


def numerical_rank(singular_values: Tensor, rows: int, columns: int) -> int:
    """How many singular values rise above the round-off."""
    tolerance = press_tolerance(singular_values.max().item(), rows, columns)
    return int((singular_values > tolerance).sum())


def effective_rank(singular_values: Tensor) -> float:
    """exp(-sum_i p_i log p_i) with p_i = s_i / sum_j s_j (Roy and Vetterli 2007).

    Between 1 and the rank: how many singular values of equal size would have as much entropy.
    """
    p = singular_values / singular_values.sum()
    return torch.special.entr(p).sum().exp().item()


@torch.no_grad()
def log_prob_spectrum(model: LanguageModel, ids: Tensor, window: int = 500) -> tuple[Tensor, tuple[int, int]]:
    """Singular values of the matrix of log-probabilities after every token of `ids`, and its shape.

    The caller passes a model in float64 and evaluation mode.
    """
    reducer, log_prob = RowReducer(), carrying_state(model)
    for words in windows(ids, window):
        reducer.add(log_prob(words))
    return reducer.singular_values(), reducer.shape
