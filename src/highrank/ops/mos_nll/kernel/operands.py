"""The operands of kernels and library products: h and slabs of W in the compute dtype, with aligned rows.

Shapes: M rows of h, D embedding size, V vocabulary, C words of a slab.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from highrank.ops.pad import kernel as pad


def padded_width(d: int, dtype: torch.dtype) -> int:
    """Round d up to a multiple of 16 bytes: tiles and library products need rows that start there."""
    return -(-d * dtype.itemsize // 16) * 16 // dtype.itemsize


def is_operand(x: Tensor, dtype: torch.dtype, width: int) -> bool:
    """Return whether x can be read without a copy."""
    return x.dtype == dtype and x.shape[1] == width and x.is_contiguous() and x.data_ptr() % 16 == 0


def padded_rows(h: Tensor, dtype: torch.dtype, ones: bool) -> Tensor:
    """Return h (M, D) in `dtype`, padded with columns of ones; with `ones`, at least one of them."""
    d, width = h.shape[1], padded_width(h.shape[1] + ones, dtype)
    if is_operand(h, dtype, width):
        return h
    rows = torch.empty(len(h), width, dtype=dtype, device=h.device)
    rows[:, :d] = h
    rows[:, d:] = 1
    return rows


def padded_slabs(weight: Tensor, dtype: torch.dtype, most: int) -> Iterator[tuple[int, int, Tensor]]:
    """Yield (start, C, W[start : start + C]) in `dtype`, padded with zero columns: views of W, or one reused buffer.

    A slab in the buffer has its number of rows rounded up to a multiple of 8, because library products of odd sizes are
    slow; dz is zero in the additional rows.
    """
    v = len(weight)
    width = padded_width(weight.shape[1], dtype)
    fit = is_operand(weight, dtype, width)
    buffer = None if fit else torch.zeros(-(-min(most, v) // 8) * 8, width, dtype=dtype, device=weight.device)
    for start in range(0, v, most):
        w = weight[start : start + most]
        if buffer is None:
            yield start, len(w), w
        else:
            pad.pad_into(buffer[: len(w)], w)
            yield start, len(w), buffer[: -(-len(w) // 8) * 8]


def mm_float32(a: Tensor, b: Tensor, out: Tensor | None = None, plus: Tensor | None = None) -> Tensor:
    """Return a b + plus in float32, from any compute dtype."""
    half: dict[str, Any] = {"out_dtype": torch.float32} if a.is_cuda and a.dtype != torch.float32 else {}
    a, b = (a, b) if half else (a.float(), b.float())
    return torch.mm(a, b, out=out, **half) if plus is None else torch.addmm(plus, a, b, out=out, **half)
