"""`mos_nll` as one node of the graphs that `torch.compile` and `torch.export` make.

They would trace its loops slab by slab, and break where it looks at numbers. `highrank::mos_nll` and its backward are
operators that run what runs without them; there, autograd functions do the same with less to do a call.

Shapes: N tokens, K components, D embedding size, V vocabulary. What an operator returns must be tensors that share no
memory with others, so an empty one stands for what is not needed.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from highrank.ops import is_capturing, only_once_differentiable
from highrank.ops.mos_nll import chunked
from highrank.ops.mos_nll.choice import takes_kernels


def mos_nll(
    h: Tensor,
    log_pi: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    impl: str,
    compute_dtype: torch.dtype,
    slab_bytes: int | None,
) -> Tensor:
    """(N, K, D), (N, K), (V, D), (V,) or None, (N,) -> (N,). A tensor that requires a gradient gets one."""
    needs = [x is not None and x.requires_grad for x in (h, log_pi, weight, bias)]
    return _forward(h, log_pi, weight, bias, targets, impl, compute_dtype, slab_bytes, needs)[0]


@torch.library.custom_op("highrank::mos_nll", mutates_args=())
def _forward(
    h: Tensor, log_pi: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor,
    impl: str, compute_dtype: torch.dtype, slab_bytes: int | None, needs: Sequence[bool],
) -> list[Tensor]:  # fmt: skip
    """nll, and what the backward pass takes from it."""
    if takes_kernels(impl, h.device, compute_dtype):
        from highrank.ops.mos_nll import kernel  # Triton takes a while to import, and may not be there

        config, _ = kernel.configs_of(h, weight, compute_dtype, slab_bytes)
        rows, offset = kernel.operands_of(h, weight, bias, compute_dtype, needs[3])
        with torch.cuda.device_of(h):
            nll, r, *of_rows = kernel.forward(rows, log_pi, weight, offset, targets, config)
        return [nll, r, torch.stack(of_rows)]
    sizes = chunked.Sizes.of(h, weight, compute_dtype, slab_bytes)
    # dW is not put off while a CUDA graph is captured: the backward pass may run outside of it.
    nll, r, dh, dw = chunked.forward(h, log_pi, weight, bias, targets, sizes, needs[0], needs[2] or needs[3])
    return [nll, r, *(nll.new_empty(0) if x is None else x for x in (dh, dw))]


@_forward.register_fake
def _(
    h: Tensor, log_pi: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor,
    impl: str, compute_dtype: torch.dtype, slab_bytes: int | None, needs: Sequence[bool],
) -> list[Tensor]:  # fmt: skip
    n, k, _ = h.shape
    if takes_kernels(impl, h.device, compute_dtype):
        return [h.new_empty(size, dtype=torch.float32) for size in ((n,), (n, k), (3, n * k))]
    sizes = chunked.Sizes.of(h, weight, compute_dtype, slab_bytes)
    nll, r = (h.new_empty(size, dtype=sizes.accumulate) for size in ((n,), (n, k)))
    dh = torch.empty_like(h, memory_format=torch.contiguous_format) if needs[0] else nll.new_empty(0)
    dw = nll.new_empty(chunked.with_bias_column(weight, bias, sizes).shape if needs[2] or needs[3] else 0)
    return [nll, r, dh, dw]


@torch.library.custom_op("highrank::mos_nll_backward", mutates_args=())
def _backward(
    upstream: Tensor, h: Tensor, log_pi: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor,
    kept: Sequence[Tensor], impl: str, compute_dtype: torch.dtype, slab_bytes: int | None, needs: Sequence[bool],
) -> list[Tensor]:  # fmt: skip
    """The gradients needed, in the order of the inputs."""
    results: Sequence[Tensor | None]
    if takes_kernels(impl, h.device, compute_dtype):
        from highrank.ops.mos_nll import kernel

        _, config = kernel.configs_of(h, weight, compute_dtype, slab_bytes)
        rows, offset = kernel.operands_of(h, weight, bias, compute_dtype, needs[3])
        r, (peak, total, log_p) = kept
        dtypes = h.dtype, log_pi.dtype, offset.dtype if bias is None else bias.dtype
        with torch.cuda.device_of(h):
            results = kernel.backward(
                upstream, rows, weight, offset, targets, r, peak, total, log_p,
                needs=needs, shape=h.shape, dtypes=dtypes, config=config,
            )  # fmt: skip
    else:
        r, dh, dw = kept
        sizes = chunked.Sizes.of(h, weight, compute_dtype, slab_bytes)
        early = None if is_capturing(h) or not (needs[2] or needs[3]) else dw
        results = chunked.gradients(
            *(upstream, h, log_pi, weight, bias, targets, r, dh if needs[0] else None, early), sizes=sizes, needs=needs
        )
    return [_alone(x) for x in results if x is not None]


def _alone(x: Tensor) -> Tensor:
    """x contiguous, in memory of its own: dW and db may be columns of one tensor."""
    alone = x.is_contiguous() and x.nbytes == x.untyped_storage().nbytes()
    return x if alone else x.clone(memory_format=torch.contiguous_format)


@_backward.register_fake
def _(
    upstream: Tensor, h: Tensor, log_pi: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor,
    kept: Sequence[Tensor], impl: str, compute_dtype: torch.dtype, slab_bytes: int | None, needs: Sequence[bool],
) -> list[Tensor]:  # fmt: skip
    inputs = zip((h, log_pi, weight, bias), needs, strict=True)
    return [torch.empty_like(x, memory_format=torch.contiguous_format) for x, need in inputs if need and x is not None]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    ctx.save_for_backward(*inputs[:5], *output[1:])
    ctx.options = inputs[5:]


def _gradients(ctx: Any, upstream: list[Tensor]) -> tuple[Tensor | None, ...]:
    return _of_nll(ctx, upstream[0])


@only_once_differentiable
def _of_nll(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
    needs = ctx.options[-1]
    results = iter(_backward(upstream, *ctx.saved_tensors[:5], list(ctx.saved_tensors[5:]), *ctx.options))
    return *(next(results) if need else None for need in needs), *[None] * 5


_forward.register_autograd(_gradients, setup_context=_keep)
