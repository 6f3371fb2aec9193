"""`mos_nll` in slabs of tokens: three matrix products for forward and backward, and one slab of logits in memory.

The forward pass visits one slab of tokens at a time, all K components together. While it holds the slab's logits, it
also computes the gradients, for an upstream gradient of one per token:

    dh_nk = r_nk (p_nk - onehot) W        dW = sum_nk r_nk (p_nk - onehot)^T h_nk        d log pi_nk = -r_nk

with the responsibilities r_nk = pi_nk p_nk(y) / p(y). The backward pass multiplies row n of dh and d log pi by the
upstream gradient u_n. dW and db are sums over rows: for a mean or a sum, u_n is the same for all n and scales them too.
Otherwise the backward pass scales them by the most frequent u_n, and visits the tokens with another u_n again.

With a `RowSample`, the gradients are computed from the kept rows of a slab alone, with their weights in place of r.
Margins are subtracted from the slab's logits; the rest is the same.

The bias is one more column of W, against a column of ones in h, so its gradient is a column of dW.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from highrank.ops import HALF, is_capturing, only_once_differentiable
from highrank.ops.mos_nll.sampling import RowSample

# The bytes of logits in a slab (or a quarter of W's bytes, if that is more). On a CPU, slabs near the size of the cache
# are fastest; a GPU needs more rows per launch. Both were chosen with benchmarks/mos_nll.py.
CPU_SLAB_BYTES = 24 * 2**20
CUDA_SLAB_BYTES = 256 * 2**20


def mos_nll(
    h: Tensor,
    log_pi: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    compute_dtype: torch.dtype | None = None,
    slab_bytes: int | None = None,
    sample: RowSample | None = None,
    margins: Tensor | None = None,
) -> Tensor:
    """Compute `mos_nll` with matrix products in `compute_dtype`."""
    sizes = Sizes.of(h, weight, compute_dtype, slab_bytes)
    return _MosNLL.apply(h, log_pi, weight, bias, targets, margins, sizes, sample)


class Inputs(NamedTuple):
    h: Tensor  # (N, K, D)
    log_pi: Tensor  # (N, K)
    weight: Tensor  # (V, D)
    bias: Tensor | None  # (V,)
    targets: Tensor  # (N,)
    margins: Tensor | None = None  # (N, K)

    def of(self, tokens: slice | Tensor) -> "Inputs":
        """Return the inputs of some of the tokens."""
        margins = None if self.margins is None else self.margins[tokens]
        return Inputs(self.h[tokens], self.log_pi[tokens], self.weight, self.bias, self.targets[tokens], margins)


class Sizes(NamedTuple):
    """The dtypes of a computation, and the size of its slabs."""

    compute: torch.dtype  # of the matrix products' inputs
    accumulate: torch.dtype  # of logits, sums and the gradient of W
    tokens: int  # per slab

    @classmethod
    def of(cls, h: Tensor, weight: Tensor, compute: torch.dtype | None, slab_bytes: int | None) -> "Sizes":
        compute = compute or h.dtype
        if h.device.type == "cpu" and compute in HALF:
            compute = torch.float32  # half-precision products are slow on most CPUs
        if slab_bytes is None:
            # Every slab reads W once: slabs much smaller than W would spend their time on that.
            least = CUDA_SLAB_BYTES if h.device.type == "cuda" else CPU_SLAB_BYTES
            slab_bytes = max(least, weight.numel() * weight.itemsize // 4)
        accumulate = torch.promote_types(compute, torch.float32)
        tokens = max(1, slab_bytes // max(1, h.shape[1] * weight.shape[0] * accumulate.itemsize))
        return cls(compute, accumulate, tokens)


class _MosNLL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, h: Tensor, log_pi: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor,
        margins: Tensor | None, sizes: Sizes, sample: RowSample | None,
    ) -> Tensor:  # fmt: skip
        h_needs, _, w_needs, b_needs = ctx.needs_input_grad[:4]
        # A CUDA graph cannot read the upstream gradient, so there the backward pass computes all of dW.
        dw_now = (w_needs or b_needs) and not is_capturing(h)
        inputs = Inputs(h, log_pi, weight, bias, targets, margins)
        nll, r, dh, dw = forward(inputs, sizes, sample, h_needs, dw_now)
        ctx.save_for_backward(*inputs, r, dh, dw)
        ctx.sizes = sizes
        ctx.sample = sample
        return nll

    @staticmethod
    @only_once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        # Read saved_tensors only once: activation checkpointing does not allow a second unpacking.
        *inputs, r, dh, dw = ctx.saved_tensors
        needs = ctx.needs_input_grad[:4]
        return *gradients(upstream, Inputs(*inputs), r, dh, dw, ctx.sizes, ctx.sample, needs), None, None, None, None


def forward(
    inputs: Inputs, sizes: Sizes, sample: RowSample | None, needs_dh: bool, needs_dw: bool
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Return nll (N,), r (N, K) and, if needed, dh (N, K, D) and [dW, db] (V, D + bias) for upstream gradients of 1."""
    h, _, weight, bias, *_ = inputs
    n, k, _ = h.shape
    w = with_bias_column(weight, bias, sizes)  # (V, D + bias columns)
    nll = torch.empty(n, dtype=sizes.accumulate, device=h.device)
    r = torch.empty(n, k, dtype=sizes.accumulate, device=h.device)
    dh = torch.zeros_like(h, memory_format=torch.contiguous_format) if needs_dh else None
    dw = torch.zeros(w.shape, dtype=sizes.accumulate, device=w.device) if needs_dw else None
    for start in range(0, n, sizes.tokens):
        rows = slice(start, start + sizes.tokens)
        slab_dh = None if dh is None else dh[rows]
        slab_sample = None if sample is None else sample.of(rows)
        _visit_slab(inputs.of(rows), w, sizes, slab_sample, nll[rows], r[rows], slab_dh, dw, None)
    return nll, r, dh, dw


def gradients(
    upstream: Tensor,
    inputs: Inputs,
    r: Tensor,
    dh: Tensor | None,
    dw: Tensor | None,  # None: `forward` did not compute it
    sizes: Sizes,
    sample: RowSample | None,
    needs: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of h, log pi, W and b that are needed, given the results of `forward`."""
    h, log_pi, weight, bias, *_ = inputs
    upstream = upstream.to(r.dtype)
    if dh is not None:
        dh = (dh * upstream[:, None, None]).to(h.dtype)
    dlog_pi = (-r * upstream[:, None]).to(log_pi.dtype) if needs[1] else None
    if not (needs[2] or needs[3]):
        return dh, dlog_pi, None, None
    if dw is None or len(h) == 0:
        shape = with_bias_column(weight, bias, sizes).shape
        dw = torch.zeros(shape, dtype=sizes.accumulate, device=h.device)
        missing = torch.arange(len(h), device=h.device)
        share = upstream
    else:
        common = upstream.mode().values
        missing = (upstream != common).nonzero().squeeze(1)  # empty for a mean or a sum
        dw = dw * common
        share = upstream[missing] - common
    if len(missing) > 0:
        _add_weight_gradient(inputs, sizes, missing, share, dw, sample)
    d = weight.shape[1]
    dweight = dw[:, :d].to(weight.dtype) if needs[2] else None
    dbias = dw[:, d].to(bias.dtype) if needs[3] and bias is not None else None
    return dh, dlog_pi, dweight, dbias


def _visit_slab(
    inputs: Inputs,  # of the slab's tokens
    w: Tensor,  # [W, b]
    sizes: Sizes,
    sample: RowSample | None,
    nll: Tensor,  # out
    r: Tensor,  # out
    dh: Tensor | None,  # out, zeros before
    dw: Tensor | None,  # out, added to
    upstream: Tensor | None,  # (tokens,); None: ones
) -> None:
    """Compute loss and responsibilities of a slab of tokens, and add what it contributes to the gradients."""
    h, log_pi, _, _, targets, margins = inputs
    tokens, k, d = h.shape
    a = _with_ones(h.reshape(tokens * k, d).to(sizes.compute), w.shape[1])  # (tokens K, D + bias columns)
    y = targets.repeat_interleave(k)[:, None]  # (tokens K, 1)

    z = _matmul(a, w.T, sizes)  # (tokens K, V): the slab, overwritten below by log p, p and p - onehot
    if margins is not None:
        z.scatter_add_(1, y, -margins.reshape(-1, 1).to(z.dtype))
    torch.log_softmax(z, dim=1, out=z)
    joint = log_pi.to(sizes.accumulate) + z.gather(1, y).view(tokens, k)  # log pi_k p_k(y)
    torch.logsumexp(joint, dim=1, out=nll)
    # Clamped: a word that no component allows (it may be padding) has log p = -inf, and -inf - -inf would be NaN.
    torch.exp(joint - nll[:, None].clamp(min=torch.finfo(nll.dtype).min), out=r)
    nll.neg_()
    if dh is None and dw is None:
        return

    weights = r if sample is None else sample.weights(r)
    if upstream is not None:
        weights = weights * upstream[:, None]
    rows = weights.view(-1, 1)
    kept: slice | Tensor = slice(None)
    if sample is not None and not is_capturing(h):
        kept = weights.view(-1).nonzero().squeeze(1)
        z, a, y, rows = z[kept], a[kept], y[kept], rows[kept]
    z.exp_()
    z.scatter_add_(1, y, z.new_full((), -1.0).expand(y.shape))
    z = z.to(sizes.compute)  # p - onehot
    if dh is not None:
        dh.view(tokens * k, d)[kept] = (_matmul(z, w[:, :d], sizes) * rows).to(dh.dtype)
    if dw is not None:
        a = (a * rows).to(sizes.compute)
        if sizes.compute == sizes.accumulate:
            dw.addmm_(z.T, a)
        else:
            dw.add_(_matmul(z.T, a, sizes))


def _add_weight_gradient(
    inputs: Inputs, sizes: Sizes, which: Tensor, upstream: Tensor, dw: Tensor, sample: RowSample | None
) -> None:
    """Add the weight gradient of the tokens `which` to `dw`, each scaled by its upstream gradient."""
    h, _, weight, bias, *_ = inputs
    w = with_bias_column(weight, bias, sizes)
    nll = torch.empty(sizes.tokens, dtype=sizes.accumulate, device=h.device)
    r = torch.empty(sizes.tokens, h.shape[1], dtype=sizes.accumulate, device=h.device)
    for rows, u in zip(which.split(sizes.tokens), upstream.split(sizes.tokens), strict=True):
        m = len(rows)
        slab_sample = None if sample is None else sample.of(rows)
        _visit_slab(inputs.of(rows), w, sizes, slab_sample, nll[:m], r[:m], None, dw, u)


def with_bias_column(weight: Tensor, bias: Tensor | None, sizes: Sizes) -> Tensor:
    """Return [W, b], (V, D) -> (V, D + 1), or W itself without a bias.

    In half precision the bias takes two columns, its rounded value and the remainder, which keeps it nearly as exact as
    in float32. Zero columns then align the width to a multiple of 8 for the matrix units.
    """
    w = weight.to(sizes.compute)
    if bias is None:
        return w
    columns = [w, bias.to(sizes.compute)[:, None]]
    if sizes.compute != sizes.accumulate:
        remainder = bias.to(sizes.accumulate) - columns[1][:, 0].to(sizes.accumulate)
        columns.append(remainder.nan_to_num(0.0).to(sizes.compute)[:, None])  # -inf - -inf is NaN
        columns.append(w.new_zeros(len(w), -(w.shape[1] + 2) % 8))
    return torch.cat(columns, dim=1)


def _with_ones(a: Tensor, width: int) -> Tensor:
    """Append columns of ones up to `width`, one for each bias (or zero) column of W."""
    missing = width - a.shape[1]
    return a if missing == 0 else torch.cat([a, a.new_ones(len(a), missing)], dim=1)


def _matmul(a: Tensor, b: Tensor, sizes: Sizes) -> Tensor:
    """Return a @ b, with inputs in the compute dtype and the result in the accumulation dtype."""
    if sizes.compute == sizes.accumulate:
        return a @ b
    return torch.mm(a, b, out_dtype=sizes.accumulate)
