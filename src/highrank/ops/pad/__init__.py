"""Zeros at the end of a tensor's dimensions and a change of dtype, in one pass; and the way back.

Libraries have their fast paths at round sizes, and zeros leave sums and products as they are. In plain torch a padded
cast is a fill and a copy, and in backward as many; on a GPU with Triton each is one kernel.
"""

from typing import Any

import torch
from torch import Tensor

from highrank.ops import HALF, has_kernels


def pad(x: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """x in `dtype`, with zeros up to `shape`; differentiable."""
    return _Pad.apply(x, shape, dtype)


def cut(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A view of the first `shape` of x; differentiable, with zeros in the gradient beyond it."""
    return _Cut.apply(x, shape)


class _Pad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        ctx.shape, ctx.dtype = x.shape, x.dtype
        return padded(x, shape, dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return cut(grad, ctx.shape).to(ctx.dtype, memory_format=torch.contiguous_format), None, None


class _Cut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        ctx.shape, ctx.dtype = tuple(x.shape), x.dtype
        return _inside(x, shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return pad(grad, ctx.shape, ctx.dtype), None


def padded(x: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """`pad` without a gradient."""
    if tuple(x.shape) == shape:
        return x.to(dtype)
    if x.is_cuda and dtype in HALF and x.dim() in (2, 3) and has_kernels(x.device):
        from highrank.ops.pad import kernel  # Triton takes a while to import, and may not be there

        return kernel.padded(x, shape, dtype)
    return reference(x, shape, dtype)


def reference(x: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The definition, in plain torch."""
    result = x.new_zeros(shape, dtype=dtype)
    _inside(result, x.shape).copy_(x)
    return result


def _inside(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x[tuple(slice(n) for n in shape)]
