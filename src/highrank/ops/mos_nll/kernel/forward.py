"""Steps 1 and 2: the loss and the responsibilities, from a maximum and a sum of exponentials per row."""

# mypy: disable-error-code="no-untyped-def"
# Kernel arguments have no Python types. With this import, `tl.constexpr` is not evaluated where Triton is missing.
from __future__ import annotations

import torch
from torch import Tensor

from highrank.ops.mos_nll.kernel.logits import LOG2E, launch_options, logits_tile, mos_nll_jit, tile_source
from highrank.ops.mos_nll.kernel.operands import is_operand, padded_slabs, padded_width
from highrank.ops.mos_nll.kernel.plan import Config, program_slots, tiles_each

try:
    import triton
    import triton.language as tl

    LOWEST = tl.constexpr(-3.0e38)  # instead of -inf: a tile of -inf logits would give -inf - -inf = NaN
    LN2 = tl.constexpr(0.6931471805599453)
except ImportError:
    triton = None


def partial_sums(rows: Tensor, weight: Tensor, offset: Tensor, config: Config) -> tuple[Tensor, Tensor]:
    """Return log2(e) times the maximum logit, and the sum of exponentials below it, per part and row: (S, M) each."""
    m = len(rows)
    v = len(weight)
    width = padded_width(weight.shape[1], rows.dtype)
    row_blocks = -(-m // config.block_m)
    slots = program_slots(rows.device, config.programs)
    slab = max(1, config.scratch_bytes // (2 * width * rows.itemsize * config.block_n)) * config.block_n
    slab = v if is_operand(weight, rows.dtype, width) else min(slab, v)  # else each slab needs a copy
    tiles = [-(-min(slab, v - start) // config.block_n) for start in range(0, v, slab)]
    each = [tiles_each(row_blocks, t, slots)[0] for t in tiles]  # tiles per program
    parts = [-(-t // e) for t, e in zip(tiles, each, strict=True)]
    peaks, totals = rows.new_empty(2, sum(parts), m, dtype=torch.float32)
    for s, (start, count, w) in enumerate(padded_slabs(weight, rows.dtype, slab) if m > 0 else ()):
        first = sum(parts[:s])
        _mos_nll_forward_kernel[(row_blocks, parts[s])](
            tile_source(rows, config.block_m, config.block_d, config.tma),
            tile_source(w, config.block_n, config.block_d, config.tma),
            *(offset[start:], peaks[first:], totals[first:], m, count, each[s]),
            **launch_options(rows, width, config),
        )
    return peaks, totals


def mix(
    rows: Tensor, log_pi: Tensor, weight: Tensor, offset: Tensor, targets: Tensor, peaks: Tensor, totals: Tensor,
    margins: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return nll (N,), r (N, K), and (M,) each: log2(e) times the row maximum, the sum of exponentials, log p_k(y)."""
    n, k = log_pi.shape
    margins = None if margins is None else margins.float().contiguous()
    nll = peaks.new_empty(n)
    r = peaks.new_empty(n, k)
    peak, total, log_p = peaks.new_empty(3, n * k)
    if n > 0:
        _mos_nll_mixture_kernel[(n,)](
            *(rows, log_pi.contiguous(), weight, *weight.stride(), offset, targets.contiguous(), margins),
            *(peaks, totals, nll, r, peak, total, log_p, n * k, k, len(weight), len(peaks)),
            *(weight.shape[1], rows.shape[1], triton.next_power_of_2(k), triton.next_power_of_2(len(peaks)), 64),
            num_warps=1,
        )
    return nll, r, peak, total, log_p


@mos_nll_jit
def _mos_nll_forward_kernel(
    h, w, bias, peaks, totals, rows, columns, each, H_WIDTH: tl.constexpr, W_WIDTH: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, TMA: tl.constexpr, FLATTEN: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BLOCK_M
    part = tl.program_id(1)
    peak = tl.full([BLOCK_M], LOWEST, dtype=tl.float32)  # times log2(e)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    last = tl.minimum((part + 1) * each, tl.cdiv(columns, BLOCK_N))
    for tile in tl.range(part * each, last, flatten=FLATTEN):
        column = tile * BLOCK_N
        z = logits_tile(h, w, bias, row, column, rows, columns, H_WIDTH, W_WIDTH, BLOCK_M, BLOCK_N, BLOCK_D, TMA)
        higher = tl.maximum(peak, tl.max(z, axis=1) * LOG2E)
        total = total * tl.exp2(peak - higher) + tl.sum(tl.exp2(z * LOG2E - higher[:, None]), axis=1)
        peak = higher
    i = row + tl.arange(0, BLOCK_M)
    at = part.to(tl.int64) * rows + i
    tl.store(peaks + at, peak, mask=i < rows)
    tl.store(totals + at, total, mask=i < rows)


@mos_nll_jit
def _mos_nll_mixture_kernel(
    h, log_pi, w, w_stride_v, w_stride_d, bias, targets, margins, peaks, totals,
    nll, r, row_peaks, row_totals, log_ps, rows, K, V, parts,
    D: tl.constexpr, WIDTH: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK_K)
    s = tl.arange(0, BLOCK_S)
    i = token * K + k
    inside = (k < K)[:, None] & (s < parts)[None, :]
    at = s.to(tl.int64)[None, :] * rows + i[:, None]
    part_peak = tl.load(peaks + at, mask=inside, other=LOWEST)  # (K, S)
    part_total = tl.load(totals + at, mask=inside, other=0.0)
    peak = tl.max(part_peak, axis=1)  # (K,)
    total = tl.where(k < K, tl.sum(part_total * tl.exp2(part_peak - peak[:, None]), axis=1), 1.0)

    y = tl.load(targets + token).to(tl.int64)
    known = (y >= 0) & (y < V)  # else W is not read, and the loss is NaN
    target = tl.zeros([BLOCK_K], dtype=tl.float32) + tl.load(bias + y, mask=known, other=float("nan"))
    for d in range(0, D, BLOCK_D):
        j = d + tl.arange(0, BLOCK_D)
        a = tl.load(h + i[:, None] * WIDTH + j[None, :], mask=(k < K)[:, None] & (j < D)[None, :], other=0.0)
        b = tl.load(w + y * w_stride_v + j * w_stride_d, mask=(j < D) & known, other=0.0).to(a.dtype)
        target += tl.sum(a.to(tl.float32) * b.to(tl.float32)[None, :], axis=1)

    if margins is not None:
        margin = tl.load(margins + i, mask=k < K, other=0.0)
        own = tl.exp2(tl.minimum(target * LOG2E - peak, 0.0))  # the target's term in the total
        others = tl.maximum(total - own, 0.0)  # not negative, however the two are rounded
        # The NaN of an unknown target stays out of the total, which the backward pass reads even if u = 0.
        total = tl.where(known, others + own * tl.exp2(-margin * LOG2E), total)
        target -= margin
    tl.store(row_peaks + i, peak, mask=k < K)
    tl.store(row_totals + i, total, mask=k < K)
    log_p = (target * LOG2E - peak - tl.log2(total)) * LN2  # log p_k(y)
    tl.store(log_ps + i, log_p, mask=k < K)
    joint = tl.load(log_pi + i, mask=k < K, other=0.0).to(tl.float32) + log_p
    joint = tl.where(k < K, joint, float("-inf"))
    top = tl.maximum(tl.max(joint, axis=0), LOWEST)
    mixed = top + tl.log(tl.sum(tl.exp(joint - top), axis=0))
    tl.store(nll + token, -mixed)
    tl.store(r + i, tl.exp(joint - mixed), mask=k < K)
