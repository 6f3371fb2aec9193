"""`mos_nll` as a custom operator: one node in the graphs of `torch.compile` and `torch.export`.

Without it they would trace the loop over slabs, and break the graph where the code reads values. `highrank::mos_nll`
and its backward operator run the same implementations as eager mode, which uses autograd functions because those cost
less per call.

Shapes: N tokens, K components, D embedding size, V vocabulary. An operator must return tensors that share no memory
with each other or with its inputs; an empty tensor stands for a result that is not needed.
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from highrank.ops import HALF, has_kernels, is_capturing, only_once_differentiable
from highrank.ops.mos_nll import chunked
from highrank.ops.mos_nll.sampling import RowSample

Impl = Literal["auto", "reference", "chunked", "triton"]


def uses_kernels(impl: str, device: torch.device, compute_dtype: torch.dtype) -> bool:
    """Return whether `impl` means the Triton kernels there; raise a ValueError if "triton" cannot run."""
    if impl == "triton" and not has_kernels(device):
        raise ValueError(f"impl='triton' needs Triton and an NVIDIA GPU (Ampere or later), not {device}")
    wanted = impl == "triton" or (impl == "auto" and device.type == "cuda" and compute_dtype in HALF)
    return wanted and has_kernels(device)


def mos_nll(
    h: Tensor,
    log_pi: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    impl: str,
    compute_dtype: torch.dtype,
    slab_bytes: int | None,
    sample: RowSample | None = None,
    margins: Tensor | None = None,
) -> Tensor:
    """Compute `mos_nll`, and in the backward pass the gradients that the inputs require."""
    needs = [x is not None and x.requires_grad for x in (h, log_pi, weight, bias)]
    eps, draws = sample or (None, None)
    return _forward(h, log_pi, weight, bias, targets, margins, draws, eps, impl, compute_dtype, slab_bytes, needs)[0]


def _sample(eps: float | None, draws: Tensor | None) -> RowSample | None:
    """Return the sample whose parts an operator took as arguments."""
    return None if eps is None or draws is None else RowSample(eps, draws)


@torch.library.custom_op("highrank::mos_nll", mutates_args=())
def _forward(
    h: Tensor, log_pi: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor,
    margins: Tensor | None, draws: Tensor | None, eps: float | None,
    impl: str, compute_dtype: torch.dtype, slab_bytes: int | None, needs: Sequence[bool],
) -> list[Tensor]:  # fmt: skip
    """Return nll, followed by the tensors that `_backward` needs."""
    if uses_kernels(impl, h.device, compute_dtype):
        from highrank.ops.mos_nll import kernel  # lazily: importing Triton is slow, and it may be missing

        config, _ = kernel.configs_of(h, weight, compute_dtype, slab_bytes)
        rows, offset = kernel.operands_of(h, weight, bias, compute_dtype, needs[3])
        with torch.cuda.device_of(h):
            nll, r, *row_sums = kernel.forward(rows, log_pi, weight, offset, targets, config, margins)
        return [nll, r, torch.stack(row_sums)]
    sizes = chunked.Sizes.of(h, weight, compute_dtype, slab_bytes)
    inputs = chunked.Inputs(h, log_pi, weight, bias, targets, margins)
    # Compute dW here even while a CUDA graph is captured: the backward pass may run outside of the capture.
    nll, r, dh, dw = chunked.forward(inputs, sizes, _sample(eps, draws), needs[0], needs[2] or needs[3])
    return [nll, r, *(nll.new_empty(0) if x is None else x for x in (dh, dw))]


@_forward.register_fake
def _(
    h: Tensor, log_pi: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor,
    margins: Tensor | None, draws: Tensor | None, eps: float | None,
    impl: str, compute_dtype: torch.dtype, slab_bytes: int | None, needs: Sequence[bool],
) -> list[Tensor]:  # fmt: skip
    n, k, _ = h.shape
    if uses_kernels(impl, h.device, compute_dtype):
        return [h.new_empty(size, dtype=torch.float32) for size in ((n,), (n, k), (3, n * k))]
    sizes = chunked.Sizes.of(h, weight, compute_dtype, slab_bytes)
    nll, r = (h.new_empty(size, dtype=sizes.accumulate) for size in ((n,), (n, k)))
    dh = torch.empty_like(h, memory_format=torch.contiguous_format) if needs[0] else nll.new_empty(0)
    dw = nll.new_empty(chunked.with_bias_column(weight, bias, sizes).shape if needs[2] or needs[3] else 0)
    return [nll, r, dh, dw]


@torch.library.custom_op("highrank::mos_nll_backward", mutates_args=())
def _backward(
    upstream: Tensor, h: Tensor, log_pi: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor,
    margins: Tensor | None, draws: Tensor | None, saved: Sequence[Tensor], eps: float | None,
    impl: str, compute_dtype: torch.dtype, slab_bytes: int | None, needs: Sequence[bool],
) -> list[Tensor]:  # fmt: skip
    """Return the gradients that are needed, in the order of the inputs."""
    results: Sequence[Tensor | None]
    sample = _sample(eps, draws)
    if uses_kernels(impl, h.device, compute_dtype):
        from highrank.ops.mos_nll import kernel

        _, config = kernel.configs_of(h, weight, compute_dtype, slab_bytes)
        rows, offset = kernel.operands_of(h, weight, bias, compute_dtype, needs[3])
        r, (peak, total, log_p) = saved
        dtypes = h.dtype, log_pi.dtype, offset.dtype if bias is None else bias.dtype
        with torch.cuda.device_of(h):
            results = kernel.backward(
                upstream, rows, weight, offset, targets, r, peak, total, log_p,
                needs=needs, shape=h.shape, dtypes=dtypes, config=config, sample=sample,
            )  # fmt: skip
    else:
        r, dh, dw = saved
        sizes = chunked.Sizes.of(h, weight, compute_dtype, slab_bytes)
        # A capture cannot read the upstream gradient, so there dW is computed again.
        ready_dw = None if is_capturing(h) or not (needs[2] or needs[3]) else dw
        inputs = chunked.Inputs(h, log_pi, weight, bias, targets, margins)
        results = chunked.gradients(upstream, inputs, r, dh if needs[0] else None, ready_dw, sizes, sample, needs)
    return [_copy_if_shared(x) for x in results if x is not None]


def _copy_if_shared(x: Tensor) -> Tensor:
    """Return x contiguous and in memory of its own; dW and db may be columns of one tensor."""
    unshared = x.is_contiguous() and x.nbytes == x.untyped_storage().nbytes()
    return x if unshared else x.clone(memory_format=torch.contiguous_format)


@_backward.register_fake
def _(
    upstream: Tensor, h: Tensor, log_pi: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor,
    margins: Tensor | None, draws: Tensor | None, saved: Sequence[Tensor], eps: float | None,
    impl: str, compute_dtype: torch.dtype, slab_bytes: int | None, needs: Sequence[bool],
) -> list[Tensor]:  # fmt: skip
    inputs = zip((h, log_pi, weight, bias), needs, strict=True)
    return [torch.empty_like(x, memory_format=torch.contiguous_format) for x, need in inputs if need and x is not None]


def _save(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    ctx.save_for_backward(*inputs[:7], *output[1:])
    ctx.options = inputs[7:]


def _gradients(ctx: Any, upstream: list[Tensor]) -> tuple[Tensor | None, ...]:
    return _gradients_of_nll(ctx, upstream[0])  # only the first output, nll, is differentiable


@only_once_differentiable
def _gradients_of_nll(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
    needs = ctx.options[-1]
    saved = ctx.saved_tensors  # read only once, see `chunked`
    results = iter(_backward(upstream, *saved[:7], list(saved[7:]), *ctx.options))
    return *(next(results) if need else None for need in needs), *[None] * 8


_forward.register_autograd(_gradients, setup_context=_save)
