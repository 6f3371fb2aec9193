"""`mos_nll` in slabs of tokens: three matrix products for forward and backward, and never more than a slab of logits.

The forward pass visits a slab of tokens at a time, all K components together. While the slab's logits are at hand it
already computes the gradients for an upstream gradient of one per token:

    dh_nk = r_nk (p_nk - onehot) W        dW = sum_nk r_nk (p_nk - onehot)^T h_nk        d log pi_nk = -r_nk

with the responsibilities r_nk = pi_nk p_nk(y) / p(y). The upstream gradient u_n scales dh and d log pi row by row
afterwards, whatever it is. dW and db mix the rows, so they are right as they stand only up to a common factor: that
is the case of a mean or a sum, and costs nothing more. Any other u is put right in the backward pass by visiting
again the tokens whose u_n differs from the most frequent value.

The bias rides along as one more column of W against a column of ones in h, so its gradient falls out of dW.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from highrank.ops import HALF, is_capturing, only_once_differentiable

# How many bytes of logits may exist at once (or a quarter of W's, if that is more). On a CPU a slab that stays near the
# cache is also the fastest; a GPU wants more rows a launch. Both were chosen with benchmarks/mos_nll.py.
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
) -> Tensor:
    """(N, K, D), (N, K), (V, D), (V,) or None, (N,) -> (N,). Matrix products run in `compute_dtype`."""
    return _MosNLL.apply(h, log_pi, weight, bias, targets, Sizes.of(h, weight, compute_dtype, slab_bytes))


class Sizes(NamedTuple):
    compute: torch.dtype  # of the matrix products' inputs
    accumulate: torch.dtype  # of logits, sums and the gradient of W
    tokens: int  # a slab

    @classmethod
    def of(cls, h: Tensor, weight: Tensor, compute: torch.dtype | None, slab_bytes: int | None) -> "Sizes":
        compute = compute or h.dtype
        if h.device.type == "cpu" and compute in HALF:
            compute = torch.float32  # half-precision products are slow on most CPUs, and less exact
        if slab_bytes is None:
            # W is read once a slab: a slab that is small beside it spends its time on that.
            least = CUDA_SLAB_BYTES if h.device.type == "cuda" else CPU_SLAB_BYTES
            slab_bytes = max(least, weight.numel() * weight.itemsize // 4)
        accumulate = torch.promote_types(compute, torch.float32)
        tokens = max(1, slab_bytes // max(1, h.shape[1] * weight.shape[0] * accumulate.itemsize))
        return cls(compute, accumulate, tokens)


class _MosNLL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, h: Tensor, log_pi: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, sizes: Sizes
    ) -> Tensor:
        h_needs, _, w_needs, b_needs = ctx.needs_input_grad[:4]
        # A CUDA graph cannot look at the upstream gradient: there, all of dW waits for the backward pass.
        early = not is_capturing(h)
        inputs = h, log_pi, weight, bias, targets
        nll, r, dh, dw = forward(*inputs, sizes, h_needs, (w_needs or b_needs) and early)
        ctx.save_for_backward(*inputs, r, dh, dw)
        ctx.sizes = sizes
        return nll

    @staticmethod
    @only_once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        return *gradients(upstream, *ctx.saved_tensors, sizes=ctx.sizes, needs=ctx.needs_input_grad[:4]), None, None


def forward(
    h: Tensor,
    log_pi: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    sizes: Sizes,
    needs_dh: bool,
    needs_dw: bool,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """nll (N,), r (N, K), and for an upstream gradient of one, where needed: dh (N, K, D), [dW, db] (V, D + bias)."""
    n, k, _ = h.shape
    w = with_bias_column(weight, bias, sizes)  # (V, D + bias columns)
    nll = torch.empty(n, dtype=sizes.accumulate, device=h.device)
    r = torch.empty(n, k, dtype=sizes.accumulate, device=h.device)
    dh = torch.empty_like(h, memory_format=torch.contiguous_format) if needs_dh else None
    dw = torch.zeros(w.shape, dtype=sizes.accumulate, device=w.device) if needs_dw else None
    for start in range(0, n, sizes.tokens):
        rows = slice(start, start + sizes.tokens)
        _visit_slab(h[rows], log_pi[rows], w, targets[rows], sizes, nll[rows], r[rows], dh, dw, start, None)
    return nll, r, dh, dw


def gradients(
    upstream: Tensor,
    h: Tensor,
    log_pi: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    r: Tensor,
    dh: Tensor | None,
    dw: Tensor | None,  # None: nothing of it was computed in `forward`
    *,
    sizes: Sizes,
    needs: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """Those of h, log pi, W and b that are needed, from what `forward` gave."""
    upstream = upstream.to(r.dtype)
    if dh is not None:
        dh = (dh * upstream[:, None, None]).to(h.dtype)
    dlog_pi = (-r * upstream[:, None]).to(log_pi.dtype) if needs[1] else None
    if not (needs[2] or needs[3]):
        return dh, dlog_pi, None, None
    if dw is None or len(h) == 0:
        shape = with_bias_column(weight, bias, sizes).shape
        dw = torch.zeros(shape, dtype=sizes.accumulate, device=h.device)
        which, share = torch.arange(len(h), device=h.device), upstream
    else:
        common = upstream.mode().values
        which = (upstream != common).nonzero().squeeze(1)  # empty for a mean or a sum
        dw, share = dw * common, upstream[which] - common
    if len(which) > 0:
        _add_weight_gradient(h, log_pi, weight, bias, targets, sizes, which, share, dw)
    d = weight.shape[1]
    dweight = dw[:, :d].to(weight.dtype) if needs[2] else None
    dbias = dw[:, d].to(bias.dtype) if needs[3] and bias is not None else None
    return dh, dlog_pi, dweight, dbias


def _visit_slab(
    h: Tensor,
    log_pi: Tensor,
    w: Tensor,
    targets: Tensor,
    sizes: Sizes,
    nll: Tensor,  # out
    r: Tensor,  # out
    dh: Tensor | None,  # out, rows from `start`
    dw: Tensor | None,  # out, added to
    start: int,
    upstream: Tensor | None,  # (tokens,), one each if None
) -> None:
    tokens, k, d = h.shape
    a = _with_ones(h.reshape(tokens * k, d).to(sizes.compute), w.shape[1])  # (tokens K, D + bias columns)
    y = targets.repeat_interleave(k)[:, None]  # (tokens K, 1)

    z = _matmul(a, w.T, sizes)  # (tokens K, V): the slab, overwritten below by log p, by p and by p - onehot
    torch.log_softmax(z, dim=1, out=z)  # in one pass, row by row
    joint = log_pi.to(sizes.accumulate) + z.gather(1, y).view(tokens, k)  # log pi_k p_k(y)
    torch.logsumexp(joint, dim=1, out=nll)
    # At least the lowest number: what no component may say has responsibilities 0, not NaN, and may be padding.
    torch.exp(joint - nll[:, None].clamp(min=torch.finfo(nll.dtype).min), out=r)
    nll.neg_()
    if dh is None and dw is None:
        return

    z.exp_()
    z.scatter_add_(1, y, z.new_full((), -1.0).expand(tokens * k, 1))
    z = z.to(sizes.compute)  # p - onehot
    rows = r.view(-1, 1)
    if dh is not None:
        out = dh[start : start + tokens].view(tokens * k, d)
        torch.mul(_matmul(z, w[:, :d], sizes), rows, out=out)
    if dw is not None:
        if upstream is not None:
            rows = (r * upstream[:, None]).view(-1, 1)
        a = (a * rows).to(sizes.compute)
        if sizes.compute == sizes.accumulate:
            dw.addmm_(z.T, a)
        else:
            dw.add_(_matmul(z.T, a, sizes))


def _add_weight_gradient(
    h: Tensor,
    log_pi: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    sizes: Sizes,
    which: Tensor,  # tokens to visit again
    upstream: Tensor,
    dw: Tensor,
) -> None:
    """dw += the weight gradient of the tokens `which`, each with its own upstream gradient."""
    w = with_bias_column(weight, bias, sizes)
    nll = torch.empty(sizes.tokens, dtype=sizes.accumulate, device=h.device)
    r = torch.empty(sizes.tokens, h.shape[1], dtype=sizes.accumulate, device=h.device)
    for rows, u in zip(which.split(sizes.tokens), upstream.split(sizes.tokens), strict=True):
        m = len(rows)
        _visit_slab(h[rows], log_pi[rows], w, targets[rows], sizes, nll[:m], r[:m], None, dw, 0, u)


def with_bias_column(weight: Tensor, bias: Tensor | None, sizes: Sizes) -> Tensor:
    """[W, b]: (V, D) -> (V, D + 1), or W itself without a bias.

    In half precision the bias takes two columns, its rounded value and the remainder, so that it stays as exact as
    float32's 24 bits allow; zero columns then fill up to a multiple of 8, which the matrix units want.
    """
    w = weight.to(sizes.compute)
    if bias is None:
        return w
    columns = [w, bias.to(sizes.compute)[:, None]]
    if sizes.compute != sizes.accumulate:
        remainder = bias.to(sizes.accumulate) - columns[1][:, 0].to(sizes.accumulate)
        columns.append(remainder.nan_to_num(0.0).to(sizes.compute)[:, None])  # -inf - -inf: nothing remains
        columns.append(w.new_zeros(len(w), -(w.shape[1] + 2) % 8))
    return torch.cat(columns, dim=1)


def _with_ones(a: Tensor, width: int) -> Tensor:
    """Columns of ones up to `width`, against the bias columns of W (and its zero columns, where they do nothing)."""
    missing = width - a.shape[1]
    return a if missing == 0 else torch.cat([a, a.new_ones(len(a), missing)], dim=1)


def _matmul(a: Tensor, b: Tensor, sizes: Sizes) -> Tensor:
    """a @ b, read in the compute dtype and written in the accumulation dtype."""
    if sizes.compute == sizes.accumulate:
        return a @ b
    return torch.mm(a, b, out_dtype=sizes.accumulate)
