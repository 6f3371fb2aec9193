"""Singular values and numerical rank of a tall matrix of log-probabilities, never held whole (section 3.3).

Rows arrive in blocks and are reduced by QR: stacking a block under the R factor so far and taking R again keeps
R^T R = A^T A without forming it, which would square the condition number and hide the small singular values.

Shapes: A is (T, V), T tokens and V words; R is at most (V, V). Everything in float64: round-off of a float32 forward
pass alone looks like full rank.
"""

import math

import torch
from torch import Tensor

from highrank.models.language_model import LanguageModel


class RowReducer:
    """Feed it row blocks of A; `singular_values` are A's."""

    def __init__(self) -> None:
        self._r: Tensor | None = None
        self.rows = 0

    def add(self, block: Tensor) -> None:  # (t, V)
        if block.dtype != torch.float64:
            raise TypeError(f"rank needs float64 from a float64 forward pass, got {block.dtype}")
        self.rows += len(block)
        stacked = block if self._r is None else torch.cat([self._r, block])
        # Below V rows there is nothing to gain from a QR yet.
        self._r = stacked if len(stacked) <= stacked.shape[1] else torch.linalg.qr(stacked, mode="r").R

    def singular_values(self) -> Tensor:
        """(min(T, V),), largest first."""
        if self._r is None:
            raise ValueError("no rows were added")
        return torch.linalg.svdvals(self._r)

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows, 0 if self._r is None else self._r.shape[1]


def press_tolerance(s_max: float, rows: int, columns: int) -> float:
    """Press et al.'s expected round-off of the singular values: 0.5 sqrt(m + n + 1) s_max eps."""
    return 0.5 * math.sqrt(rows + columns + 1) * s_max * torch.finfo(torch.float64).eps


def numerical_rank(singular_values: Tensor, rows: int, columns: int) -> int:
    """How many singular values rise above the round-off."""
    tolerance = press_tolerance(singular_values.max().item(), rows, columns)
    return int((singular_values > tolerance).sum())


@torch.no_grad()
def log_prob_spectrum(model: LanguageModel, ids: Tensor, window: int = 500) -> tuple[Tensor, tuple[int, int]]:
    """Singular values of the matrix of log-probabilities after every token of `ids`, and its shape.

    The caller passes a model in float64 and evaluation mode.
    """
    reducer = RowReducer()
    state = model.initial_state(1)
    for words in ids[:, None].split(window):
        log_p, state = model.log_prob(words, state)
        reducer.add(log_p[:, 0])
    return reducer.singular_values(), reducer.shape
