"""`mos_nll` in Triton: tiles of logits stay in registers, and only one slab of their gradient is in memory.

    z = h W^T + b                   l_nk = logsumexp_v(z_nkv) - z_nky          nll_n = -logsumexp_k(log pi_nk - l_nk)
    dz_nkv = u_n r_nk (softmax(z_nk)_v - [v = y_n])          dh = dz W          [dW, db] = dz^T [h, 1]

Shapes: N tokens, K components, M = N K rows of h, D embedding size, V vocabulary, C columns (words) of a slab, S parts
of the vocabulary. u (N,) is the upstream gradient, r (N, K) the responsibilities.

1. `_mos_nll_forward_kernel`: each program handles a block of rows and a part of the vocabulary. It writes log2(e) times
   the maximum, and the sum of exponentials, of each row: (S, M) each.
2. `_mos_nll_mixture_kernel`: each program handles a token. It combines the parts, computes the target's logits with one
   dot product per row, and mixes them: nll, r and log p_k(y). With margins, it first lowers the target's logit and its
   term in the sum of exponentials; the later steps read that sum and log p_k(y), so they are the same with margins.
3. `_mos_nll_dlogits_kernel`: recomputes the logits and writes u r p for C words at a time, in the compute dtype. Its
   maximum is the rounded one of step 1, so that the rounding cancels.
4. `_mos_nll_target_kernel`: writes u r (p - 1) at the targets, computed from log p to be exact when p is nearly one.
5. Library matrix products turn the slab into dh (summed over slabs in float32) and the slab's rows of dW. The columns
   that pad h hold ones, against zero columns of W, so that db is one more column of dW.
6. `_mos_nll_finish_kernel`: casts the float32 [dW, db] of the slab to the parameters' dtypes.

Steps 1 and 2 are in `forward.py`, the others in `backward.py`. They compute tiles of logits (`logits.py`) from padded
operands (`operands.py`); `plan.py` chooses the sizes of tiles and slabs.

In total this takes four products of 2 M D V operations, two of them at library speed; separate kernels for dh and dW
would each recompute the logits, and take five. There are no atomics: the same inputs give the same bits. u and r are
multiplied into dz in float32, before it is rounded. In float16, dz is also scaled to the range of float16 by a common
factor, which is divided out of dh, dW and db, so that an upstream gradient of 1/N does not underflow.

Skipping: steps 3 to 6 leave out row (n, k) if u_n = 0, which is exact, or if r_nk < 2^-24 / K. The second drops less
than 2^-24 of a token's responsibilities, which sum to one, so any gradient changes by less than half a float32 unit in
the last place of the token's largest term. The gradient of log pi, -u r, skips nothing. Counting rows makes the host
wait for the device, so nothing is skipped while a CUDA graph is captured.

Sampling: a `RowSample` replaces r in dz by its weights, most of which are zero. The rows with a weight move to the
front, and only the device knows how many they are: steps 3 and 5 are launched for all M rows, and programs beyond that
number return at once. Step 5 then uses the kernels of `products.py`, which also do the work of step 6. A CUDA graph can
hold all of it, and every replay draws new rows.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from highrank.ops import is_capturing, only_once_differentiable
from highrank.ops.mos_nll.kernel.backward import gradients
from highrank.ops.mos_nll.kernel.forward import mix, partial_sums
from highrank.ops.mos_nll.kernel.operands import padded_rows
from highrank.ops.mos_nll.kernel.plan import Config, backward_config, forward_config
from highrank.ops.mos_nll.sampling import RowSample

SKIP_BELOW = 2.0**-24  # share of a token's responsibilities that may be skipped, over all components


def mos_nll(
    h: Tensor,
    log_pi: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    compute_dtype: torch.dtype | None = None,
    slab_bytes: int | None = None,
    skip: bool = True,
    sample: RowSample | None = None,
    margins: Tensor | None = None,
    configs: tuple[Config, Config] | None = None,
) -> Tensor:
    """Compute `mos_nll` in float32, with matrix products in `compute_dtype`.

    `slab_bytes` bounds the memory besides inputs and gradients; more memory means fewer launches. `skip=False` visits
    every row in the backward pass, `sample` a random choice of them. The loss of a target outside the vocabulary is
    NaN. In float32, the library products of the backward pass follow `torch.set_float32_matmul_precision`; the kernels'
    own products are always exact.
    """
    compute_dtype = compute_dtype or h.dtype
    configs = configs or configs_of(h, weight, compute_dtype, slab_bytes)
    with torch.cuda.device_of(h):
        return _MosNLL.apply(h, log_pi, weight, bias, targets, margins, compute_dtype, skip, sample, configs)


def configs_of(
    h: Tensor, weight: Tensor, compute_dtype: torch.dtype, slab_bytes: int | None = None
) -> tuple[Config, Config]:
    """Return the configurations of the forward and the backward pass."""
    if compute_dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"the Triton mos_nll computes in float32, float16 or bfloat16, not in {compute_dtype}")
    size = (compute_dtype, h.device, *weight.shape)
    configs = forward_config(*size), backward_config(*size)
    # With many rows, slabs must still be wide: every slab reads and writes the running sum dh once.
    slab_bytes = slab_bytes or max(configs[1].scratch_bytes, 4 * h.numel() * compute_dtype.itemsize)
    return configs[0]._replace(scratch_bytes=slab_bytes), configs[1]._replace(scratch_bytes=slab_bytes)


class _MosNLL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, h: Tensor, log_pi: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor,
        margins: Tensor | None, compute_dtype: torch.dtype, skip: bool, sample: RowSample | None,
        configs: tuple[Config, Config],
    ) -> Tensor:  # fmt: skip
        rows, offset = operands_of(h, weight, bias, compute_dtype, ones=ctx.needs_input_grad[3])
        nll, *row_sums = forward(rows, log_pi, weight, offset, targets, configs[0], margins)
        ctx.save_for_backward(rows, weight, offset, targets, *row_sums)
        ctx.options = {
            "shape": h.shape,
            "dtypes": (h.dtype, log_pi.dtype, torch.float32 if bias is None else bias.dtype),
            "config": configs[1],
            "skip": skip,
            "sample": sample,
        }
        return nll

    @staticmethod
    @only_once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        gradients = backward(upstream, *ctx.saved_tensors, needs=ctx.needs_input_grad[:4], **ctx.options)
        return *gradients, *[None] * 6


def operands_of(
    h: Tensor, weight: Tensor, bias: Tensor | None, compute_dtype: torch.dtype, ones: bool
) -> tuple[Tensor, Tensor]:
    """Return the rows of h (M, D padded), with a column of `ones` for the bias gradient, and the bias in float32."""
    rows = padded_rows(h.reshape(-1, h.shape[-1]), compute_dtype, ones)
    return rows, weight.new_zeros(len(weight), dtype=torch.float32) if bias is None else bias.float().contiguous()


def forward(
    rows: Tensor, log_pi: Tensor, weight: Tensor, offset: Tensor, targets: Tensor, config: Config,
    margins: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return nll (N,), r (N, K), and peak, total and log p_k(y), (M,) each, as `mix` does."""
    peaks, totals = partial_sums(rows, weight, offset, config)  # (S, M)
    return mix(rows, log_pi, weight, offset, targets, peaks, totals, margins)


def backward(
    upstream: Tensor, rows: Tensor, weight: Tensor, offset: Tensor, targets: Tensor,
    r: Tensor, peak: Tensor, total: Tensor, log_p: Tensor, *,
    needs: Sequence[bool], shape: Sequence[int], dtypes: Sequence[torch.dtype], config: Config, skip: bool = True,
    sample: RowSample | None = None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """Return the gradients of h, log pi, W and b that are needed, given h's shape and the dtypes of h, log pi and b."""
    needs_h, needs_pi, needs_w, needs_b = needs
    upstream = upstream.float()
    # A token with u = 0 contributes nothing, even if its r is NaN because its target is out of range.
    weighted = (upstream != 0)[:, None]  # (N, 1)
    dlog_pi = torch.where(weighted, -r * upstream[:, None], 0.0).to(dtypes[1]) if needs_pi else None
    if not (needs_h or needs_w or needs_b):
        return None, dlog_pi, None, None
    n, k, d = shape
    weights = r if sample is None else sample.weights(r)
    share = torch.where(weighted, weights * upstream[:, None], 0.0).view(-1)  # (M,): the factor of each row in dz
    y = targets.repeat_interleave(k)  # (M,), contiguous: of one token, an expanded view would keep its stride of 0
    order = None  # which rows to visit, and in which order; None: all, as they are
    kept = None
    if sample is not None:
        order = (share == 0).byte().argsort(stable=True)  # the rows with a weight first
        kept = (share != 0).sum(dtype=torch.int32).view(1)
    elif skip and n > 0 and not is_capturing(rows):
        active = (~(r < SKIP_BELOW / k) & weighted).view(-1)  # (M,); NaN stays active
        order = active.nonzero().squeeze(1)
        if 16 * len(order) > 15 * len(rows):  # gathering rows would cost more than it saves
            order = None
    picked = [rows, y, peak, total, log_p, share]
    if order is not None:
        picked = [x.index_select(0, order) for x in picked]
    dh, dw, db = gradients(picked, weight, offset, config, needs_h, needs_w, needs_b, kept)
    if dh is not None:
        dh = dh[:, :d].to(dtypes[0])  # (picked rows, D)
        if order is not None:
            dh = dh.new_zeros(n * k, d).index_copy_(0, order, dh)
        dh = dh.view(n, k, d)
    return dh, dlog_pi, dw, None if db is None else db.to(dtypes[2])
