"""Steps 3 to 6: the gradients of h, W and b, from one slab of the logits' gradient dz after another."""

# mypy: disable-error-code="no-untyped-def"
# Kernel arguments have no Python types. With this import, `tl.constexpr` is not evaluated where Triton is missing.
from __future__ import annotations

import torch
from torch import Tensor

from highrank.ops.mos_nll.kernel.logits import LOG2E, launch_options, logits_tile, mos_nll_jit, tile_source
from highrank.ops.mos_nll.kernel.operands import mm_float32, padded_slabs, padded_width
from highrank.ops.mos_nll.kernel.plan import KEPT_SHARE, Config, program_slots, slab_tiles, tiles_each
from highrank.ops.mos_nll.kernel.products import add_row_gradients_, write_weight_gradients

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

FLOAT16_RANGE = 2.0**15  # |p - onehot| <= 1, and float16 ends just below 2^16


def gradients(
    row_inputs: list[Tensor],
    weight: Tensor,
    offset: Tensor,
    config: Config,
    needs_h: bool,
    needs_w: bool,
    needs_b: bool,
    kept: Tensor | None = None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return dh (M, D padded) and db (V,) in float32, and dW (V, D) in W's dtype.

    `row_inputs` are h (M, D padded), with ones if `needs_b`, and y, peak, total, log p_k(y) and share (u r), (M,) each.
    `kept`, (1,), is how many of the rows are visited; the share of the others must be 0. None visits all of them.
    """
    rows, y, peak, total, log_p, share = row_inputs
    m = len(rows)
    v, d = weight.shape
    width = padded_width(d, rows.dtype)
    unscale = None
    if rows.dtype == torch.float16 and m > 0:
        unscale = share.abs().amax().clamp_min(1e-30) / FLOAT16_RANGE  # stays a tensor, so that the host does not wait
        share = share / unscale
    dh = rows.new_empty(m, width, dtype=torch.float32) if needs_h else None
    dw = torch.empty_like(weight, memory_format=torch.contiguous_format) if needs_w else None
    db = torch.empty_like(offset) if needs_b else None
    if m == 0:
        return dh, None if dw is None else dw.zero_(), None if db is None else db.zero_()
    row_blocks = -(-m // config.block_m)
    busy_blocks = row_blocks if kept is None else max(1, int(KEPT_SHARE * row_blocks))
    slots = program_slots(rows.device, config.programs)
    left = max(config.scratch_bytes - (0 if dh is None else dh.nbytes), config.scratch_bytes // 2)
    bytes_per_word = (m + width) * rows.itemsize + 4 * rows.shape[1]  # of dz, W and dW
    most = max(1, left // (bytes_per_word * config.block_n))
    slab = slab_tiles(busy_blocks, -(-v // config.block_n), most, slots) * config.block_n
    dz = rows.new_empty(m, slab)
    a = tile_source(rows, config.block_m, config.block_d, config.tma)
    out = tile_source(dz, config.block_m, config.block_n // (2 if config.halves else 1), config.tma)
    for start, count, w in padded_slabs(weight, rows.dtype, slab):  # w (C or a few more, D padded)
        words = slice(start, start + count)
        each, _ = tiles_each(busy_blocks, -(-count // config.block_n), slots)
        _mos_nll_dlogits_kernel[(row_blocks, -(-count // (each * config.block_n)))](
            *(a, tile_source(w, config.block_n, config.block_d, config.tma), offset[words]),
            *(peak, total, share, out, kept, m, count, slab, each),
            **launch_options(rows, width, config) | {"HALVES": config.halves},
        )
        _mos_nll_target_kernel[(-(-m // 256),)](y, log_p, share, dz, m, count, start, slab, 256)
        dw_slab = None if dw is None else dw[words]
        db_slab = None if db is None else db[words]
        if dh is not None and kept is not None:
            add_row_gradients_(dh if start > 0 else dh.zero_(), dz, w, count, kept, config)
        elif dh is not None:
            mm_float32(dz[:, : len(w)], w, out=dh, plus=dh if start > 0 else None)
        if (needs_w or needs_b) and kept is not None:
            write_weight_gradients(dz, rows, count, d, dw_slab, db_slab, unscale, kept, config)
        elif needs_w or needs_b:
            _mos_nll_finish_kernel[(-(-count // 4),)](
                *(mm_float32(dz[:, : len(w)].T, rows), dw_slab, db_slab, unscale),
                *(count, d, rows.shape[1], 4, triton.next_power_of_2(rows.shape[1])),
            )
    return dh if dh is None or unscale is None else dh.mul_(unscale), dw, db


@mos_nll_jit
def _mos_nll_dlogits_kernel(
    h, w, bias, peaks, totals, shares, dz, kept, rows, columns, slab, each,
    H_WIDTH: tl.constexpr, W_WIDTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    TMA: tl.constexpr, FLATTEN: tl.constexpr, HALVES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BLOCK_M
    i = row + tl.arange(0, BLOCK_M)
    share = tl.load(shares + i, mask=i < rows, other=0.0)
    peak = tl.load(peaks + i, mask=i < rows, other=float("inf"))  # exp2(z - inf) = 0 for rows beyond the last
    factor = share / tl.load(totals + i, mask=i < rows, other=1.0)
    part = tl.program_id(1)
    last = tl.minimum((part + 1) * each, tl.cdiv(columns, BLOCK_N))
    if kept is not None:
        last = tl.where(row < tl.load(kept), last, 0)
    for tile in tl.range(part * each, last, flatten=FLATTEN):
        column = tile * BLOCK_N
        z = logits_tile(h, w, bias, row, column, rows, columns, H_WIDTH, W_WIDTH, BLOCK_M, BLOCK_N, BLOCK_D, TMA)
        g = tl.exp2(z * LOG2E - peak[:, None]) * factor[:, None]
        if TMA and HALVES:
            left, right = tl.split(tl.permute(tl.reshape(g, [BLOCK_M, 2, BLOCK_N // 2]), [0, 2, 1]))
            dz.store([row, column], left.to(dz.dtype))
            dz.store([row, column + BLOCK_N // 2], right.to(dz.dtype))
        elif TMA:
            dz.store([row, column], g.to(dz.dtype))
        else:  # the slab is a multiple of the tile wide, so only rows need a mask
            j = column + tl.arange(0, BLOCK_N)
            at = i.to(tl.int64)[:, None] * slab + j[None, :]
            tl.store(dz + at, g.to(dz.dtype.element_ty), mask=(i < rows)[:, None])


@mos_nll_jit
def _mos_nll_target_kernel(targets, log_ps, shares, dz, rows, columns, start, slab, BLOCK: tl.constexpr):
    """Write share (p - 1) at the targets, as expm1(log p): exact also when p is nearly one."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.load(targets + i, mask=i < rows, other=-1).to(tl.int64) - start
    share = tl.load(shares + i, mask=i < rows, other=0.0)
    inside = (j >= 0) & (j < columns)
    x = tl.minimum(tl.load(log_ps + i, mask=inside, other=0.0), 0.0)
    series = x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6)))))
    g = share * tl.where(x > -0.25, series, tl.exp(x) - 1)
    tl.store(dz + i.to(tl.int64) * slab + j, g.to(dz.dtype.element_ty), mask=inside)


@mos_nll_jit
def _mos_nll_finish_kernel(
    product, dw, db, unscale, rows, D: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Split product (C, WIDTH) = [dW, db, ...] in float32 into dw (C, D) and db (C,), either of which may be None."""
    i = (tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK))[:, None]
    j = tl.arange(0, BLOCK_D)[None, :]
    x = tl.load(product + i * WIDTH + j, mask=(i < rows) & (j < WIDTH))
    x *= 1.0 if unscale is None else tl.load(unscale)
    if dw is not None:
        tl.store(dw + i * D + j, x.to(dw.dtype.element_ty), mask=(i < rows) & (j < D))
    if db is not None:
        tl.store(db + i + (j - D), x, mask=(i < rows) & (j == D))
