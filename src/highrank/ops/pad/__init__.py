"""Zero-padding at the end of a tensor's dimensions together with a cast, and the inverse.

Libraries are fastest at aligned sizes, and zeros do not change sums or products. In plain torch a padded cast is a fill
and a copy, forward and backward; with Triton each is one kernel.
"""

from typing import Any

import torch
from torch import Tensor

from highrank.ops import HALF, has_kernels


def pad(x: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return x in `dtype`, zero-padded to `shape`; differentiable."""
    return _Pad.apply(x, shape, dtype)


def cut(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the view of x's first `shape` elements; differentiable, with zero gradient for the rest."""
    return _Cut.apply(x, shape)


class _Pad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        ctx.shape = tuple(x.shape)
        ctx.dtype = x.dtype
        if ctx.shape == shape:
            return x.to(dtype)
        if x.is_cuda and dtype in HALF and x.dim() in (2, 3) and has_kernels(x.device):
            from highrank.ops.pad import kernel  # lazily: importing Triton is slow, and it may be missing

            return kernel.pad(x, shape, dtype)
        return reference(x, shape, dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return cut(grad, ctx.shape).to(ctx.dtype, memory_format=torch.contiguous_format), None, None


class _Cut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        ctx.shape = tuple(x.shape)
        ctx.dtype = x.dtype
        return _first(x, shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return pad(grad, ctx.shape, ctx.dtype), None


def reference(x: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Compute the definition in plain torch."""
    result = x.new_zeros(shape, dtype=dtype)
    _first(result, x.shape).copy_(x)
    return result


def _first(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x[tuple(slice(n) for n in shape)]
