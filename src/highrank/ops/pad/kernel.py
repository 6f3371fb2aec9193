"""Padding in Triton: (A, B, C) -> (A', B', C') in another dtype, each element read once and written once."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
from torch import Tensor

from highrank.ops.jit import jit

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None


def pad(x: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return x, of two or three dimensions and any strides, in `dtype` and zero-padded to `shape`."""
    return pad_into(torch.empty(shape, dtype=dtype, device=x.device), x)


def pad_into(out: Tensor, x: Tensor) -> Tensor:
    """Write x and zeros to the contiguous `out`."""
    a, b, c = (1, *out.shape) if out.dim() == 2 else out.shape
    x = x[None] if x.dim() == 2 else x
    with torch.cuda.device_of(x):
        _pad_kernel[(a * b,)](x, out, *x.stride(), *x.shape, b, c, triton.next_power_of_2(c))
    return out


# A is often the length of a window: a new length must not compile the kernel again.
@jit(do_not_specialize=["A"])
def _pad_kernel(x, out, stride_a, stride_b, stride_c, A, B, C, B_WIDE, C_WIDE, BLOCK: tl.constexpr):
    """Write one row of C' elements per program."""
    row = tl.program_id(0).to(tl.int64)
    a, b = row // B_WIDE, row % B_WIDE
    c = tl.arange(0, BLOCK)
    value = tl.load(x + a * stride_a + b * stride_b + c * stride_c, mask=(a < A) & (b < B) & (c < C), other=0.0)
    tl.store(out + row * C_WIDE + c, value.to(out.dtype.element_ty), mask=c < C_WIDE)
