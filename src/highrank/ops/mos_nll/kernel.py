"""`mos_nll` in Triton: logits live in registers, tile by tile, and one bounded slab of their gradient in memory.

    z = h W^T + b                   l_nk = logsumexp_v(z_nkv) - z_nky          nll_n = -logsumexp_k(log pi_nk - l_nk)
    dz_nkv = u_n r_nk (softmax(z_nk)_v - [v = y_n])          dh = dz W          [dW, db] = dz^T [h, 1]

Shapes: N tokens, K components, M = N K rows of h, D embedding size, V vocabulary, C columns (words) of a slab, S parts
of the vocabulary. u (N,) is the upstream gradient, r (N, K) the responsibilities.

1. `_mos_nll_forward_kernel`: a program owns a block of rows and a part of the vocabulary, and leaves log2(e) times the
   maximum and the sum of exponentials of each row, (S, M) each.
2. `_mos_nll_mixture_kernel`: a program owns a token, joins the parts, takes the target's logit from one dot product
   a row, and mixes: nll, r and the log p_k(y).
3. `_mos_nll_dlogits_kernel`: recomputes logits and writes u r p for C words at a time, in the compute dtype: a bias,
   one multiply-add, one exp2 and one factor a logit. Its maximum is the rounded one of step 1, so the rounding cancels.
4. `_mos_nll_target_kernel`: writes u r (p - 1) over the targets, from log p: small errors when p is nearly one.
5. Library matrix products turn the slab into dh (summed over slabs in float32) and the slab's rows of dW. The columns
   that pad h hold ones, W reads as zero there, and db is one more column of dW.
6. `_mos_nll_finish_kernel`: takes the float32 [dW, db] of the slab to the parameters' dtypes.

That is four products of 2 M D V operations instead of the five of two kernels that recompute apart, and half of them
run at the library's speed. No atomics: the same inputs give the same bits. u and r enter dz in float32, before it is
rounded; in float16 dz is scaled up to its range by a common factor, which the D-sized results take back, so an
upstream gradient of 1/N underflows nowhere.

Sizes. Tiles of 128 x 128, two programs a multiprocessor, hide one's exponentials under the other's products. Tiles of
128 x 256 read a quarter less from the L2 cache, and win where products outweigh the rest (D > 512) or a program has few
tiles (V < 16384). A larger slab means fewer launches and less reading and writing of dh's sum: what a slab needs and
the sum share `scratch_bytes`, such that some ten thousand rows fit in 64 MiB (D <= 512) or 128 MiB, all counted, and
more rows in four times what they take themselves.

Skipping. Row (n, k) is left out of steps 3 to 6 when u_n = 0, or when r_nk < 2^-24 / K. The first is exact. The second
drops less than 2^-24 of a token's responsibilities in total, which sum to one: the gradient of any parameter changes by
less than half a float32 unit in the last place of the token's largest term. The gradient of log pi, -u r, never
skips. Counting rows makes the host wait for the device, so nothing is skipped while a CUDA graph is captured.
"""

# mypy: disable-error-code="no-untyped-def"
# Kernels' arguments have no Python types; their `tl.constexpr` stays unevaluated, for imports where Triton is missing.
from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from highrank.ops.pad import kernel as pad

try:
    import triton
    import triton.language as tl
    from triton.tools.tensor_descriptor import TensorDescriptor

    LOWEST = tl.constexpr(-3.0e38)  # instead of -inf, so that a tile of -inf logits does not make -inf - -inf
    LOG2E, LN2 = tl.constexpr(1.4426950408889634), tl.constexpr(0.6931471805599453)
except ImportError:
    triton = None

SKIP_BELOW = 2.0**-24  # of a token's responsibilities, all components together
FLOAT16_RANGE = 2.0**15  # |p - onehot| <= 1, and float16 ends just below 2^16


class Config(NamedTuple):
    """How a kernel is cut into programs."""

    block_m: int  # rows of h
    block_n: int  # words
    block_d: int
    num_warps: int
    num_stages: int
    tma: bool  # tiles through the tensor memory accelerator (Hopper and later), else through pointers
    flatten: bool  # one loop over (tile, chunk of D), so that loads run ahead across tiles
    programs: int  # a multiprocessor holds: with two, the exponentials of one hide under the products of the other
    halves: bool = False  # a tile of dz leaves in two halves, through half the shared memory
    scratch_bytes: int = 60 * 2**20  # of the sum of dh and a slab of dz, dW and W; half of it for W in the forward pass


def forward_config(dtype: torch.dtype, device: torch.device, v: int, d: int) -> Config:
    """The forward kernel's configuration."""
    if dtype == torch.float32:  # no matrix unit multiplies exact float32: small tiles of plain multiply-adds
        return Config(64, 64, 16, num_warps=4, num_stages=3, tma=False, flatten=False, programs=2)
    if not _has_tma(device):
        return Config(128, 128, 32, num_warps=8, num_stages=3, tma=False, flatten=True, programs=1)
    scratch_bytes = (120 if d > 512 else 60) * 2**20
    if d > 512 or v < 16384:
        return Config(128, 256, 64, 8, num_stages=3, tma=True, flatten=True, programs=1, scratch_bytes=scratch_bytes)
    return Config(128, 128, 64, 4, num_stages=3, tma=True, flatten=True, programs=2, scratch_bytes=scratch_bytes)


def backward_config(dtype: torch.dtype, device: torch.device, v: int, d: int) -> Config:
    """The dlogits kernel's: shared memory for two programs holds three stages and half a tile of dz on its way out."""
    config = forward_config(dtype, device, max(v, 16384), d)  # the vocabulary does not matter
    return config._replace(halves=config.tma and config.programs == 2)


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
    deterministic: bool = False,
    configs: tuple[Config, Config] | None = None,
) -> Tensor:
    """(N, K, D), (N, K), (V, D), (V,) or None, (N,) -> (N,) float32. Matrix products run in `compute_dtype`.

    `slab_bytes` bounds what it holds besides inputs and gradients: more means fewer launches, which count outside CUDA
    graphs. `skip=False` visits every row in the backward pass. `deterministic` changes nothing: every result always is.
    A target outside the vocabulary gives NaN. Under float32 the products of the backward pass follow
    `torch.set_float32_matmul_precision`, those of the logits are exact.
    """
    del deterministic
    compute_dtype = compute_dtype or h.dtype
    if compute_dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"the Triton mos_nll computes in float32, float16 or bfloat16, not in {compute_dtype}")
    size = (compute_dtype, h.device, *weight.shape)
    if configs is None:
        configs = forward_config(*size), backward_config(*size)
        # Many rows need wide slabs all the same, or their sum dh is read and written too often.
        slab_bytes = slab_bytes or max(configs[1].scratch_bytes, 4 * h.numel() * compute_dtype.itemsize)
    if slab_bytes:
        configs = configs[0]._replace(scratch_bytes=slab_bytes), configs[1]._replace(scratch_bytes=slab_bytes)
    with torch.cuda.device_of(h):
        return _MosNLL.apply(h, log_pi, weight, bias, targets, compute_dtype, skip, configs)


class _MosNLL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, h: Tensor, log_pi: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor,
        compute_dtype: torch.dtype, skip: bool, configs: tuple[Config, Config],
    ) -> Tensor:  # fmt: skip
        n, k, d = h.shape
        rows = _rows(h.reshape(n * k, d), compute_dtype, ones=ctx.needs_input_grad[3])  # (M, D padded)
        offset = weight.new_zeros(len(weight), dtype=torch.float32) if bias is None else bias.float()  # (V,)
        peaks, totals = _partial_sums(rows, weight, offset, configs[0])  # (S, M)
        nll, r, peak, total, log_p = _mix(rows, log_pi, weight, offset, targets, peaks, totals)
        ctx.save_for_backward(rows, weight, offset, targets, r, peak, total, log_p)
        ctx.shape, ctx.dtypes = h.shape, (h.dtype, log_pi.dtype, torch.float32 if bias is None else bias.dtype)
        ctx.skip, ctx.config = skip, configs[1]
        return nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight, offset, targets, r, peak, total, log_p = ctx.saved_tensors
        needs_h, needs_pi, needs_w, needs_b = ctx.needs_input_grad[:4]
        upstream = upstream.float()
        # A token of zero weight counts for nothing, even if its target is no word and its loss NaN.
        shares = torch.where((upstream != 0)[:, None], r * upstream[:, None], 0.0)  # (N, K), a row's factor in dz
        dlog_pi = (-shares).to(ctx.dtypes[1]) if needs_pi else None
        dh = dw = db = None
        if needs_h or needs_w or needs_b:
            n, k, d = ctx.shape
            share = shares.view(-1)
            y = targets[:, None].expand(n, k).reshape(-1)  # (M,)
            keep = None
            if ctx.skip and n > 0 and not (rows.is_cuda and torch.cuda.is_current_stream_capturing()):
                active = (~(r < SKIP_BELOW / k) & (upstream != 0)[:, None]).view(-1)  # (M,), NaN stays active
                keep = active.nonzero().squeeze(1)
                if 16 * len(keep) > 15 * len(rows):  # gathering would cost more than it saves
                    keep = None
            picked = [rows, y, peak, total, log_p, share]
            if keep is not None:
                picked = [x.index_select(0, keep) for x in picked]
            dh, dw, db = _gradients(picked, weight, offset, ctx.config, needs_h, needs_w, needs_b)
            if dh is not None:
                dh = dh[:, :d].to(ctx.dtypes[0])  # (M, D), of the rows kept
                if keep is not None:
                    dh = dh.new_zeros(n * k, d).index_copy_(0, keep, dh)
                dh = dh.view(n, k, d)
            db = None if db is None else db.to(ctx.dtypes[2])
        return dh, dlog_pi, dw, db, None, None, None, None


def _partial_sums(rows: Tensor, weight: Tensor, offset: Tensor, config: Config) -> tuple[Tensor, Tensor]:
    """log2(e) times the maximum logit, and the sum of exponentials below it, a row and a part of the words: (S, M)."""
    m, v, width = len(rows), len(weight), _width(weight.shape[1], rows.dtype)
    row_blocks, slots = -(-m // config.block_m), _slots(rows.device, config.programs)
    slab = max(1, config.scratch_bytes // (2 * width * rows.itemsize * config.block_n)) * config.block_n
    slab = v if _is_operand(weight, rows.dtype, width) else min(slab, v)  # else a cast or padded copy of each
    tiles = [-(-min(slab, v - start) // config.block_n) for start in range(0, v, slab)]
    each = [_tiles_each(row_blocks, t, slots)[0] for t in tiles]  # a program
    parts = [-(-t // e) for t, e in zip(tiles, each, strict=True)]
    peaks, totals = rows.new_empty(2, sum(parts), m, dtype=torch.float32)
    for s, (start, count, w) in enumerate(_slabs(weight, rows.dtype, slab) if m > 0 else ()):
        first = sum(parts[:s])
        _mos_nll_forward_kernel[(row_blocks, parts[s])](
            _source(rows, config.block_m, config.block_d, config.tma),
            _source(w, config.block_n, config.block_d, config.tma),
            *(offset[start:], peaks[first:], totals[first:], m, count, each[s]),
            **_meta(rows, width, config),
        )
    return peaks, totals


def _mix(
    rows: Tensor, log_pi: Tensor, weight: Tensor, offset: Tensor, targets: Tensor, peaks: Tensor, totals: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """nll (N,), r (N, K), and a row's maximum times log2(e), sum over the vocabulary, and log p_k(y): (M,) each."""
    n, k = log_pi.shape
    nll, r = peaks.new_empty(n), peaks.new_empty(n, k)
    peak, total, log_p = peaks.new_empty(3, n * k)
    if n > 0:
        _mos_nll_mixture_kernel[(n,)](
            *(rows, log_pi.contiguous(), weight, *weight.stride(), offset, targets.contiguous(), peaks, totals),
            *(nll, r, peak, total, log_p, n * k, k, len(weight), len(peaks)),
            *(weight.shape[1], rows.shape[1], triton.next_power_of_2(k), triton.next_power_of_2(len(peaks)), 64),
            num_warps=1,
        )
    return nll, r, peak, total, log_p


def _gradients(
    of_rows: list[Tensor], weight: Tensor, offset: Tensor, config: Config, needs_h: bool, needs_w: bool, needs_b: bool
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """dh (M, D padded) and db (V,) in float32, dW (V, D) in W's dtype: a slab of dz after the other.

    `of_rows`: h (M, D padded), with ones if `needs_b`; y, peak, total, log p_k(y) and share (u r), (M,) each."""
    rows, y, peak, total, log_p, share = of_rows
    m, (v, d), width = len(rows), weight.shape, _width(weight.shape[1], rows.dtype)
    back = None
    if rows.dtype == torch.float16 and m > 0:
        back = share.abs().amax().clamp_min(1e-30) / FLOAT16_RANGE  # a tensor: the host does not wait for it
        share = share / back
    dh = rows.new_empty(m, width, dtype=torch.float32) if needs_h else None
    dw = torch.empty_like(weight, memory_format=torch.contiguous_format) if needs_w else None
    db = torch.empty_like(offset) if needs_b else None
    if m == 0:
        return dh, None if dw is None else dw.zero_(), None if db is None else db.zero_()
    row_blocks, slots = -(-m // config.block_m), _slots(rows.device, config.programs)
    left = max(config.scratch_bytes - (0 if dh is None else dh.nbytes), config.scratch_bytes // 2)
    word = (m + width) * rows.itemsize + 4 * rows.shape[1]  # bytes of dz, W and dW
    most = max(1, left // (word * config.block_n))
    slab = _slab_tiles(row_blocks, -(-v // config.block_n), most, slots) * config.block_n
    dz = rows.new_empty(m, slab)
    a = _source(rows, config.block_m, config.block_d, config.tma)
    out = _source(dz, config.block_m, config.block_n // (2 if config.halves else 1), config.tma)
    for start, count, w in _slabs(weight, rows.dtype, slab):  # w (C or a few more, D padded)
        words = slice(start, start + count)
        each, _ = _tiles_each(row_blocks, -(-count // config.block_n), slots)
        _mos_nll_dlogits_kernel[(row_blocks, -(-count // (each * config.block_n)))](
            *(a, _source(w, config.block_n, config.block_d, config.tma), offset[words]),
            *(peak, total, share, out, m, count, slab, each),
            **_meta(rows, width, config) | {"HALVES": config.halves},
        )
        _mos_nll_target_kernel[(-(-m // 256),)](y, log_p, share, dz, m, count, start, slab, 256)
        g = dz[:, : len(w)]  # (M, C or a few more)
        if dh is not None:
            _matmul(g, w, out=dh, plus=dh if start > 0 else None)
        if dw is not None or db is not None:
            _mos_nll_finish_kernel[(-(-count // 4),)](
                *(_matmul(g.T, rows), None if dw is None else dw[words], None if db is None else db[words], back),
                *(count, d, rows.shape[1], 4, triton.next_power_of_2(rows.shape[1])),
            )
    return dh if dh is None or back is None else dh.mul_(back), dw, db


def _width(d: int, dtype: torch.dtype) -> int:
    """d, up to whole 16 bytes: tiles and library products want rows that start there."""
    return -(-d * dtype.itemsize // 16) * 16 // dtype.itemsize


def _is_operand(x: Tensor, dtype: torch.dtype, width: int) -> bool:
    return x.dtype == dtype and x.shape[1] == width and x.is_contiguous() and x.data_ptr() % 16 == 0


def _rows(h: Tensor, dtype: torch.dtype, ones: bool) -> Tensor:
    """(M, D) in `dtype`, padded with ones, of which there is at least one column if asked."""
    d, width = h.shape[1], _width(h.shape[1] + ones, dtype)
    if _is_operand(h, dtype, width):
        return h
    rows = torch.empty(len(h), width, dtype=dtype, device=h.device)
    rows[:, :d] = h
    rows[:, d:] = 1
    return rows


def _slabs(weight: Tensor, dtype: torch.dtype, most: int) -> Iterator[tuple[int, int, Tensor]]:
    """(start, C, W[start : start + C]) in `dtype`, padded with zero columns: views, or one buffer that is filled anew.

    The buffer gives a few rows more than C where that makes their number round: library products of odd sizes are slow,
    and dz is zero there."""
    v, width = len(weight), _width(weight.shape[1], dtype)
    fit = _is_operand(weight, dtype, width)
    buffer = None if fit else torch.zeros(-(-min(most, v) // 8) * 8, width, dtype=dtype, device=weight.device)
    for start in range(0, v, most):
        w = weight[start : start + most]
        if buffer is None:
            yield start, len(w), w
        else:
            pad.padded_(buffer[: len(w)], w)
            yield start, len(w), buffer[: -(-len(w) // 8) * 8]


def _matmul(a: Tensor, b: Tensor, out: Tensor | None = None, plus: Tensor | None = None) -> Tensor:
    """a b + plus in float32, from any compute dtype."""
    half: dict[str, Any] = {"out_dtype": torch.float32} if a.is_cuda and a.dtype != torch.float32 else {}
    a, b = (a, b) if half else (a.float(), b.float())
    return torch.mm(a, b, out=out, **half) if plus is None else torch.addmm(plus, a, b, out=out, **half)


@lru_cache
def _has_tma(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


@lru_cache
def _slots(device: torch.device, programs: int) -> int:
    """How many programs run at once."""
    return programs * (torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1)


@lru_cache(maxsize=16384)
def _tiles_each(row_blocks: int, tiles: int, slots: int) -> tuple[int, float]:
    """How many tiles of words a program visits, so that the device is busy to the end, and how long that takes in tiles
    one after the other, of which a program costs a quarter to start."""
    each = {-(-tiles // parts) for parts in range(1, min(tiles, 32 if row_blocks > 8 else 128) + 1)}
    rounds = {e: -(-row_blocks * -(-tiles // e) // slots) * (e + 0.25) for e in sorted(each, reverse=True)}
    return min(rounds.items(), key=lambda item: item[1])


@lru_cache(maxsize=1024)
def _slab_tiles(row_blocks: int, tiles: int, most: int, slots: int) -> int:
    """How many tiles of words a slab holds, at most `most`, so that all slabs take the fewest rounds: three each, for
    launches and for reading and writing the sum of dh, and those of its tiles."""

    def rounds(t: int) -> float:
        return 3 + _tiles_each(row_blocks, t, slots)[1] if t > 0 else 0

    few = range(most, most // 2, -1) if most < tiles else [tiles]
    return min(few, key=lambda t: tiles // t * rounds(t) + rounds(tiles % t))


def _source(x: Tensor, block_rows: int, block_columns: int, tma: bool) -> Any:
    return TensorDescriptor.from_tensor(x, [block_rows, block_columns]) if tma else x


def _meta(rows: Tensor, width: int, config: Config) -> dict[str, Any]:
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_D", "num_warps", "num_stages", "TMA", "FLATTEN")
    return {"H_WIDTH": rows.shape[1], "W_WIDTH": width, **dict(zip(names, config, strict=False))}


def _jit(function: Callable[..., Any]) -> Any:
    if triton is None:
        return function
    # Counts change from call to call: a kernel compiled again for a multiple of 16 would stall training.
    counts, vectors = ["rows", "columns", "start", "each", "parts"], ["peaks", "totals", "row_totals", "log_ps"]
    return triton.jit(function, do_not_specialize=counts, do_not_specialize_on_alignment=vectors)


@_jit
def _tile(source, row, column, rows, WIDTH: tl.constexpr, R: tl.constexpr, C: tl.constexpr, TMA: tl.constexpr):
    """source[row : row + R, column : column + C], zero outside."""
    if TMA:
        tile = source.load([row, column])
    else:
        i = row + tl.arange(0, R)
        j = column + tl.arange(0, C)
        inside = (i < rows)[:, None] & (j < WIDTH)[None, :]
        tile = tl.load(source + i.to(tl.int64)[:, None] * WIDTH + j[None, :], mask=inside, other=0.0)
    return tile


@_jit
def _logits(
    h, w, bias, row, column, rows, columns, H_WIDTH: tl.constexpr, W_WIDTH: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """A (BLOCK_M, BLOCK_N) tile of h W^T + b in float32, -inf beyond the last word."""
    z = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for d in range(0, W_WIDTH, BLOCK_D):
        x = _tile(h, row, d, rows, H_WIDTH, BLOCK_M, BLOCK_D, TMA)
        y = _tile(w, column, d, columns, W_WIDTH, BLOCK_N, BLOCK_D, TMA)
        z = tl.dot(x, tl.trans(y), z, input_precision="ieee")
    j = column + tl.arange(0, BLOCK_N)
    return z + tl.load(bias + j, mask=j < columns, other=float("-inf"))[None, :]


@_jit
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
        z = _logits(h, w, bias, row, column, rows, columns, H_WIDTH, W_WIDTH, BLOCK_M, BLOCK_N, BLOCK_D, TMA)
        higher = tl.maximum(peak, tl.max(z, axis=1) * LOG2E)
        total = total * tl.exp2(peak - higher) + tl.sum(tl.exp2(z * LOG2E - higher[:, None]), axis=1)
        peak = higher
    i = row + tl.arange(0, BLOCK_M)
    at = part.to(tl.int64) * rows + i
    tl.store(peaks + at, peak, mask=i < rows)
    tl.store(totals + at, total, mask=i < rows)


@_jit
def _mos_nll_mixture_kernel(
    h, log_pi, w, w_stride_v, w_stride_d, bias, targets, peaks, totals,
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
    tl.store(row_peaks + i, peak, mask=k < K)
    tl.store(row_totals + i, total, mask=k < K)

    y = tl.load(targets + token).to(tl.int64)
    known = (y >= 0) & (y < V)  # else nothing is read, and the loss is NaN
    target = tl.zeros([BLOCK_K], dtype=tl.float32) + tl.load(bias + y, mask=known, other=float("nan"))
    for d in range(0, D, BLOCK_D):
        j = d + tl.arange(0, BLOCK_D)
        a = tl.load(h + i[:, None] * WIDTH + j[None, :], mask=(k < K)[:, None] & (j < D)[None, :], other=0.0)
        b = tl.load(w + y * w_stride_v + j * w_stride_d, mask=(j < D) & known, other=0.0).to(a.dtype)
        target += tl.sum(a.to(tl.float32) * b.to(tl.float32)[None, :], axis=1)

    log_p = (target * LOG2E - peak - tl.log2(total)) * LN2  # log p_k(y)
    tl.store(log_ps + i, log_p, mask=k < K)
    joint = tl.load(log_pi + i, mask=k < K, other=0.0).to(tl.float32) + log_p
    joint = tl.where(k < K, joint, float("-inf"))
    top = tl.maximum(tl.max(joint, axis=0), LOWEST)
    mixed = top + tl.log(tl.sum(tl.exp(joint - top), axis=0))
    tl.store(nll + token, -mixed)
    tl.store(r + i, tl.exp(joint - mixed), mask=k < K)


@_jit
def _mos_nll_dlogits_kernel(
    h, w, bias, peaks, totals, shares, dz, rows, columns, slab, each,
    H_WIDTH: tl.constexpr, W_WIDTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    TMA: tl.constexpr, FLATTEN: tl.constexpr, HALVES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BLOCK_M
    i = row + tl.arange(0, BLOCK_M)
    share = tl.load(shares + i, mask=i < rows, other=0.0)
    peak = tl.load(peaks + i, mask=i < rows, other=float("inf"))  # rows beyond the last: exp2(z - inf) = 0
    factor = share / tl.load(totals + i, mask=i < rows, other=1.0)
    part = tl.program_id(1)
    last = tl.minimum((part + 1) * each, tl.cdiv(columns, BLOCK_N))
    for tile in tl.range(part * each, last, flatten=FLATTEN):
        column = tile * BLOCK_N
        z = _logits(h, w, bias, row, column, rows, columns, H_WIDTH, W_WIDTH, BLOCK_M, BLOCK_N, BLOCK_D, TMA)
        g = tl.exp2(z * LOG2E - peak[:, None]) * factor[:, None]
        if TMA and HALVES:
            left, right = tl.split(tl.permute(tl.reshape(g, [BLOCK_M, 2, BLOCK_N // 2]), [0, 2, 1]))
            dz.store([row, column], left.to(dz.dtype))
            dz.store([row, column + BLOCK_N // 2], right.to(dz.dtype))
        elif TMA:
            dz.store([row, column], g.to(dz.dtype))
        else:  # the slab is whole tiles wide: only rows need a mask
            j = column + tl.arange(0, BLOCK_N)
            at = i.to(tl.int64)[:, None] * slab + j[None, :]
            tl.store(dz + at, g.to(dz.dtype.element_ty), mask=(i < rows)[:, None])


@_jit
def _mos_nll_target_kernel(targets, log_ps, shares, dz, rows, columns, start, slab, BLOCK: tl.constexpr):
    """share (p - 1) where the target is: as exact when p is nearly one, and the same for each way to store a tile."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.load(targets + i, mask=i < rows, other=-1).to(tl.int64) - start
    share = tl.load(shares + i, mask=i < rows, other=0.0)
    inside = (j >= 0) & (j < columns)
    x = tl.minimum(tl.load(log_ps + i, mask=inside, other=0.0), 0.0)
    series = x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6)))))
    g = share * tl.where(x > -0.25, series, tl.exp(x) - 1)
    tl.store(dz + i.to(tl.int64) * slab + j, g.to(dz.dtype.element_ty), mask=inside)


@_jit
def _mos_nll_finish_kernel(
    product, dw, db, back, rows, D: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr
):
    """product (C, WIDTH) float32, [dW, db, ...] -> dw (C, D), db (C,), either of which may be None."""
    i = (tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK))[:, None]
    j = tl.arange(0, BLOCK_D)[None, :]
    x = tl.load(product + i * WIDTH + j, mask=(i < rows) & (j < WIDTH))
    x *= 1.0 if back is None else tl.load(back)
    if dw is not None:
        tl.store(dw + i * D + j, x.to(dw.dtype.element_ty), mask=(i < rows) & (j < D))
    if db is not None:
        tl.store(db + i + (j - D), x, mask=(i < rows) & (j == D))
