"""`activation_penalty` in Triton: one kernel and a small sum forward, one kernel backward; plain torch needs forty.

    d/dg   = 2 alpha / |g| g
    d/draw = 2 beta / |diff| ((raw_t - raw_(t-1)) - (raw_(t+1) - raw_t)),  with zero for differences beyond either end

Shapes: g and raw (T, B, H), any strides; rows are the T B pairs of time and batch column.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from highrank.ops import only_once_differentiable
from highrank.ops.jit import jit

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None


def activation_penalty(g: Tensor, raw: Tensor, alpha: float, beta: float) -> Tensor:
    """Compute the penalty: (T, B, H), (T, B, H) with T > 1 -> 0-dim float32."""
    with torch.cuda.device_of(g):
        return _ActivationPenalty.apply(g, raw, alpha / g.numel(), beta / raw[1:].numel())


class _ActivationPenalty(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, g: Tensor, raw: Tensor, alpha: float, beta: float) -> Tensor:
        ctx.save_for_backward(g, raw)
        ctx.alpha, ctx.beta = alpha, beta
        length, batch, hidden = g.shape
        partial = g.new_empty(length * batch, dtype=torch.float32)  # atomics would not be deterministic
        _forward_kernel[(length * batch,)](
            g, raw, partial, alpha, beta, batch, hidden, *g.stride(), *raw.stride(), triton.next_power_of_2(hidden)
        )
        return partial.sum()

    @staticmethod
    @only_once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        g, raw = ctx.saved_tensors
        length, batch, hidden = g.shape
        dg, draw = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (g, raw))
        _backward_kernel[(length * batch,)](
            *(g, raw, dg, draw, upstream, 2 * ctx.alpha, 2 * ctx.beta, length, batch, hidden),
            *(*g.stride(), *raw.stride(), triton.next_power_of_2(hidden)),
        )
        return dg, draw, None, None


@jit()
def _forward_kernel(
    g, raw, partial, alpha, beta, B, H, g_t, g_b, g_h, raw_t, raw_b, raw_h, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    t, b = row // B, row % B
    h = tl.arange(0, BLOCK)
    inside = h < H
    x = tl.load(g + t * g_t + b * g_b + h * g_h, mask=inside, other=0.0).to(tl.float32)
    here = raw + t * raw_t + b * raw_b + h * raw_h
    now = tl.load(here, mask=inside, other=0.0).to(tl.float32)
    before = tl.load(here - raw_t, mask=inside & (t > 0), other=0.0).to(tl.float32)
    step = tl.where(t > 0, now - before, 0.0)
    tl.store(partial + row, tl.sum(alpha * x * x + beta * step * step, axis=0))


# alpha, beta and T depend on the length of a window. Floats are never specialised on; T must not be either, or a new
# length would compile the kernel again.
@jit(do_not_specialize=["T"])
def _backward_kernel(
    g, raw, dg, draw, upstream, alpha, beta, T, B, H, g_t, g_b, g_h, raw_t, raw_b, raw_h, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    t, b = row // B, row % B
    h = tl.arange(0, BLOCK)
    inside = h < H
    scale = tl.load(upstream)
    x = tl.load(g + t * g_t + b * g_b + h * g_h, mask=inside, other=0.0).to(tl.float32)
    tl.store(dg + row * H + h, (scale * alpha * x).to(dg.dtype.element_ty), mask=inside)
    here = raw + t * raw_t + b * raw_b + h * raw_h
    now = tl.load(here, mask=inside, other=0.0).to(tl.float32)
    before = tl.load(here - raw_t, mask=inside & (t > 0), other=0.0).to(tl.float32)
    after = tl.load(here + raw_t, mask=inside & (t < T - 1), other=0.0).to(tl.float32)
    change = tl.where(t > 0, now - before, 0.0) - tl.where(t < T - 1, after - now, 0.0)
    tl.store(draw + row * H + h, (scale * beta * change).to(draw.dtype.element_ty), mask=inside)
