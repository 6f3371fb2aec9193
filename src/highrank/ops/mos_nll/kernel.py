"""`mos_nll` in Triton: logits live in registers, tile by tile, and one bounded slab of their gradient in memory.

    z = h W^T + b                   l_nk = logsumexp_v(z_nkv) - z_nky          nll_n = -logsumexp_k(log pi_nk - l_nk)
    dz_nkv = u_n r_nk (softmax(z_nk)_v - [v = y_n])          dh = dz W          dW = dz^T h          db = sum_nk dz_nk

Shapes: N tokens, K components, M = N K rows of h, D embedding size, V vocabulary, C columns (words) of a slab, S parts
of the vocabulary. u (N,) is the upstream gradient, r (N, K) the responsibilities.

1. `_mos_nll_forward_kernel`: a program owns a block of rows and a part of the vocabulary, and leaves the maximum and
   the sum of exponentials of each row, (S, M) each.
2. `_mos_nll_mixture_kernel`: a program owns a token, joins the parts, takes the target's logit from one dot product
   a row, and mixes: nll and r.
3. `_mos_nll_dlogits_kernel`: recomputes logits and writes dz for C words at a time, in the compute dtype. Library
   matrix products turn the slab into dh (summed over slabs in float32) and the slab's rows of dW (written once).

That is four products of 2 M D V operations instead of the five of two kernels that recompute apart, and half of them
run at the library's speed. No atomics: the same inputs give the same bits. u and r enter dz in float32, before it is
rounded; in float16 dz is scaled up to its range by a common factor, which the D-sized results take back, so an
upstream gradient of 1/N underflows nowhere.

Skipping. Row (n, k) is left out of step 3 when u_n = 0, or when r_nk < 2^-24 / K. The first is exact. The second drops
less than 2^-24 of a token's responsibilities in total, which sum to one: the gradient of any parameter changes by
less than half a float32 unit in the last place of the token's largest term. The gradient of log pi, -u r, never
skips. Counting rows makes the host wait for the device; while a CUDA graph is captured, step 3 instead passes over
the blocks in which no row is left, as in a window padded with tokens of zero weight.
"""

# mypy: disable-error-code="no-untyped-def"
# The kernels' arguments have no Python types. Their `tl.constexpr` stays unevaluated, so that this module can be
# imported where Triton is not installed.
from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

try:
    import triton
    import triton.language as tl
    from triton.tools.tensor_descriptor import TensorDescriptor

    LOWEST = tl.constexpr(-3.0e38)  # instead of -inf, so that a tile of -inf logits does not make -inf - -inf
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
    slab_bytes: int = 32 * 2**20  # of dz, or of a cast copy of W


def forward_config(dtype: torch.dtype, device: torch.device) -> Config:
    """The forward kernel's configuration."""
    if dtype == torch.float32:  # no matrix unit multiplies exact float32: small tiles of plain multiply-adds
        return Config(64, 64, 16, num_warps=4, num_stages=3, tma=False, flatten=False, programs=2)
    if not _has_tma(device):
        return Config(128, 128, 32, num_warps=8, num_stages=3, tma=False, flatten=True, programs=1)
    return Config(128, 128, 64, num_warps=4, num_stages=3, tma=True, flatten=True, programs=2)


def backward_config(dtype: torch.dtype, device: torch.device) -> Config:
    """The dlogits kernel's: with a tile of dz on its way out, shared memory for two programs leaves two stages."""
    config = forward_config(dtype, device)
    return config._replace(num_stages=2) if config.tma else config


def is_available(device: torch.device | str) -> bool:
    """Whether the kernels run there: an NVIDIA GPU since Ampere, or a CPU under TRITON_INTERPRET=1."""
    device = torch.device(device)
    if triton is None or device.type not in ("cpu", "cuda"):
        return False
    if device.type == "cpu":
        return not isinstance(_mos_nll_forward_kernel, triton.JITFunction)
    return torch.version.cuda is not None and torch.cuda.get_device_capability(device) >= (8, 0)


def mos_nll(
    h: Tensor,
    log_pi: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    compute_dtype: torch.dtype | None = None,
    skip: bool = True,
    deterministic: bool = False,
    configs: tuple[Config, Config] | None = None,
) -> Tensor:
    """(N, K, D), (N, K), (V, D), (V,) or None, (N,) -> (N,) float32. Matrix products run in `compute_dtype`.

    `skip=False` visits every row in the backward pass. `deterministic` changes nothing: every result is, always.
    A target outside the vocabulary gives NaN. Under float32 the products of the backward pass follow
    `torch.set_float32_matmul_precision`, those of the logits are exact.
    """
    del deterministic
    compute_dtype = compute_dtype or h.dtype
    if compute_dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"the Triton mos_nll computes in float32, float16 or bfloat16, not in {compute_dtype}")
    configs = configs or (forward_config(compute_dtype, h.device), backward_config(compute_dtype, h.device))
    with torch.cuda.device_of(h):
        return _MosNLL.apply(h, log_pi, weight, bias, targets, compute_dtype, skip, configs)


class _MosNLL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        log_pi: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        compute_dtype: torch.dtype,
        skip: bool,
        configs: tuple[Config, Config],
    ) -> Tensor:
        n, k, d = h.shape
        unit = 16 // compute_dtype.itemsize
        rows = _operand(h.reshape(n * k, d), compute_dtype, -(-d // unit) * unit)  # (M, D padded)
        offset = weight.new_zeros(len(weight), dtype=torch.float32) if bias is None else bias.float()  # (V,)
        peaks, totals = _partial_sums(rows, weight, offset, configs[0])  # (S, M)
        nll, r, peak, total = _mix(rows, log_pi, weight, offset, targets, peaks, totals)

        ctx.save_for_backward(rows, weight, offset, targets, r, peak, total)
        ctx.shape, ctx.dtypes = h.shape, (h.dtype, log_pi.dtype, torch.float32 if bias is None else bias.dtype)
        ctx.skip, ctx.config = skip, configs[1]
        return nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight, offset, targets, r, peak, total = ctx.saved_tensors
        needs_h, needs_pi, needs_w, needs_b = ctx.needs_input_grad[:4]
        upstream = upstream.float()
        dlog_pi = (r * -upstream[:, None]).to(ctx.dtypes[1]) if needs_pi else None
        dh = dw = db = None
        if needs_h or needs_w or needs_b:
            n, k, d = ctx.shape
            share = (r * upstream[:, None]).view(-1)  # (M,), the row's factor in dz
            y = targets[:, None].expand(n, k).reshape(-1)  # (M,)
            keep, sparse = None, False
            if ctx.skip and n > 0:
                active = (~(r < SKIP_BELOW / k) & (upstream != 0)[:, None]).view(-1)  # (M,), NaN stays active
                share = torch.where(active, share, 0.0)
                sparse = rows.is_cuda and torch.cuda.is_current_stream_capturing()
                if not sparse:
                    keep = active.nonzero().squeeze(1)
                    if 16 * len(keep) > 15 * len(rows):  # gathering would cost more than it saves
                        keep = None
            picked = (rows, y, peak, total, share)
            if keep is not None:
                picked = tuple(x.index_select(0, keep) for x in picked)
            dh, dw, db = _gradients(*picked, weight, offset, ctx.config, sparse, needs_h, needs_w, needs_b)
            if dh is not None:
                dh = dh[:, :d].to(ctx.dtypes[0])
                if keep is not None:
                    dh = dh.new_zeros(n * k, d).index_copy_(0, keep, dh)
                dh = dh.view(n, k, d)
            db = None if db is None else db.to(ctx.dtypes[2])
        return dh, dlog_pi, dw, db, None, None, None, None


def _partial_sums(rows: Tensor, weight: Tensor, offset: Tensor, config: Config) -> tuple[Tensor, Tensor]:
    """The maximum logit and the sum of exponentials below it, for each row and each part of the vocabulary: (S, M)."""
    (m, width), v = rows.shape, len(weight)
    row_blocks = -(-m // config.block_m)
    slab = v
    if not _is_operand(weight, rows.dtype, width):  # cast or padded copies of W, a bounded part of it at a time
        slab = max(1, config.slab_bytes // (width * rows.element_size() * config.block_n)) * config.block_n
    launches = []  # (first word, words, tiles a program, parts)
    for start in range(0, v, slab):
        tiles = -(-min(slab, v - start) // config.block_n)
        each = _tiles_each(row_blocks, tiles, _slots(rows.device, config.programs))
        launches.append((start, min(slab, v - start), each, -(-tiles // each)))
    peaks, totals = rows.new_empty(2, sum(parts for *_, parts in launches), m, dtype=torch.float32)
    first = 0
    for start, columns, each, parts in launches if m > 0 else ():
        w = _operand(weight[start : start + columns], rows.dtype, width)  # (columns, D padded)
        _mos_nll_forward_kernel[(row_blocks, parts)](
            _source(rows, config.block_m, config.block_d, config.tma),
            _source(w, config.block_n, config.block_d, config.tma),
            *(offset[start:], peaks[first:], totals[first:], m, columns, each),
            **_meta(width, config),
        )
        first += parts
    return peaks, totals


def _mix(
    rows: Tensor, log_pi: Tensor, weight: Tensor, offset: Tensor, targets: Tensor, peaks: Tensor, totals: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """nll (N,), r (N, K), and each row's maximum and sum over the whole vocabulary, (M,)."""
    n, k = log_pi.shape
    nll = peaks.new_empty(n)
    r = peaks.new_empty(n, k)
    peak, total = torch.empty_like(peaks[0]), torch.empty_like(peaks[0])
    if n > 0:
        v, d = weight.shape
        block_k, block_s = triton.next_power_of_2(k), triton.next_power_of_2(len(peaks))
        _mos_nll_mixture_kernel[(n,)](
            *(rows, log_pi.contiguous(), weight, *weight.stride(), offset, targets.contiguous(), peaks, totals),
            *(nll, r, peak, total, n * k, k, v, len(peaks)),
            *(d, rows.shape[1], block_k, block_s, 64),  # constants to the compiler
            num_warps=1,
        )
    return nll, r, peak, total


def _gradients(
    rows: Tensor,  # (M, D padded)
    y: Tensor,  # (M,) word ids
    peak: Tensor,  # (M,)
    total: Tensor,  # (M,)
    share: Tensor,  # (M,) u r
    weight: Tensor,
    offset: Tensor,
    config: Config,
    sparse: bool,  # blocks of rows without a share may be passed over
    needs_h: bool,
    needs_w: bool,
    needs_b: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """dh (M, D padded) and db (V,) in float32, dW (V, D) in W's dtype: a slab of dz after the other."""
    (m, width), (v, d) = rows.shape, weight.shape
    back = None
    if rows.dtype == torch.float16 and m > 0:
        back = share.abs().amax().clamp_min(1e-30) / FLOAT16_RANGE  # a tensor: the host does not wait for it
        share = share / back
    dh = rows.new_empty(m, width, dtype=torch.float32) if needs_h else None
    dw = torch.empty_like(weight, memory_format=torch.contiguous_format) if needs_w else None
    db = torch.empty_like(offset) if needs_b else None
    if m == 0:
        return dh, None if dw is None else dw.zero_(), None if db is None else db.zero_()

    row_blocks = -(-m // config.block_m)
    slots = _slots(rows.device, config.programs)
    most = max(1, config.slab_bytes // (m * config.block_n * rows.element_size()))
    slab = _slab_tiles(row_blocks, min(most, -(-v // config.block_n)), slots) * config.block_n
    fresh = rows.new_zeros if sparse else rows.new_empty  # blocks passed over stay zero in every slab
    dz = fresh(m, slab)
    sums = fresh(row_blocks, slab, dtype=torch.float32)  # of dz over the rows of a block
    a = _source(rows, config.block_m, config.block_d, config.tma)
    out = _source(dz, config.block_m, config.block_n, config.tma)
    direct = dw is not None and dw.dtype == torch.float32 and width == d and back is None
    for start in range(0, v, slab):
        columns = min(slab, v - start)
        words = slice(start, start + columns)
        w = _operand(weight[words], rows.dtype, width)  # (C, D padded)
        each = _tiles_each(row_blocks, -(-columns // config.block_n), slots)
        _mos_nll_dlogits_kernel[(row_blocks, -(-columns // (each * config.block_n)))](
            *(a, _source(w, config.block_n, config.block_d, config.tma), offset[words]),
            *(y, peak, total, share, out, sums, m, columns, start, slab, each),
            SUMS=needs_b,
            SPARSE=sparse,
            **_meta(width, config),
        )
        g = dz[:, :columns]  # (M, C)
        if dh is not None:
            _matmul(g, w, out=dh, add=start > 0)
        if dw is not None and direct:
            _matmul(g.T, rows, out=dw[words])
        elif dw is not None:
            part = _matmul(g.T, rows)[:, :d]  # (C, D)
            dw[words] = part if back is None else part * back
        if db is not None:
            torch.sum(sums[:, :columns], dim=0, out=db[words])
    if back is not None:
        dh = None if dh is None else dh.mul_(back)
        db = None if db is None else db.mul_(back)
    return dh, dw, db


def _is_operand(x: Tensor, dtype: torch.dtype, width: int) -> bool:
    return x.dtype == dtype and x.shape[1] == width and x.is_contiguous() and x.data_ptr() % 16 == 0


def _operand(x: Tensor, dtype: torch.dtype, width: int) -> Tensor:
    """x in `dtype`, with zero columns up to `width`: tiles and library products want rows that start at 16 bytes."""
    if _is_operand(x, dtype, width):
        return x
    out = torch.empty(len(x), width, dtype=dtype, device=x.device)
    out[:, : x.shape[1]] = x
    out[:, x.shape[1] :] = 0
    return out


def _matmul(a: Tensor, b: Tensor, out: Tensor | None = None, add: bool = False) -> Tensor:
    """a b in float32, from any compute dtype; added to `out` if asked."""
    if a.is_cuda and a.dtype != torch.float32:
        if out is not None and add:
            return torch.addmm(out, a, b, out_dtype=torch.float32, out=out)
        return torch.mm(a, b, out_dtype=torch.float32, out=out)
    if out is not None and add:
        return out.addmm_(a.float(), b.float())
    return torch.mm(a.float(), b.float(), out=out)


@lru_cache
def _has_tma(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


@lru_cache
def _slots(device: torch.device, programs: int) -> int:
    """How many programs run at once."""
    return programs * (torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1)


@lru_cache(maxsize=1024)
def _tiles_each(row_blocks: int, tiles: int, slots: int) -> int:
    """How many tiles of words a program visits, so that the device is busy to the end: fewest rounds of tiles."""

    def rounds(each: int) -> float:
        return -(-row_blocks * -(-tiles // each) // slots) * (each + 0.25)  # a quarter of a tile to start a program

    parts = range(1, min(tiles, 32 if row_blocks > 8 else 128) + 1)
    return min((-(-tiles // p) for p in parts), key=rounds)


@lru_cache(maxsize=1024)
def _slab_tiles(row_blocks: int, most: int, slots: int) -> int:
    """How many tiles of words a slab holds, at most `most`: fewest rounds a tile, and one more a slab to launch it."""
    return min(range(1, most + 1), key=lambda t: ((-(-row_blocks * t // slots) + 1) / t, -t))


def _source(x: Tensor, block_rows: int, block_columns: int, tma: bool) -> Any:
    return TensorDescriptor.from_tensor(x, [block_rows, block_columns]) if tma else x


def _meta(width: int, config: Config) -> dict[str, Any]:
    blocks = {"D": width, "BLOCK_M": config.block_m, "BLOCK_N": config.block_n, "BLOCK_D": config.block_d}
    how = {"TMA": config.tma, "FLATTEN": config.flatten, "num_warps": config.num_warps}
    return {**blocks, **how, "num_stages": config.num_stages}


def _jit(function: Callable[..., Any]) -> Any:
    if triton is None:
        return function
    # Counts change from call to call: a kernel compiled again for a multiple of 16 would stall training.
    return triton.jit(function, do_not_specialize=["rows", "columns", "start", "each", "parts"])


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
    h, w, bias, row, column, rows, columns,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """A (BLOCK_M, BLOCK_N) tile of h W^T + b in float32, -inf beyond the last word."""
    z = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for d in range(0, D, BLOCK_D):
        a = _tile(h, row, d, rows, D, BLOCK_M, BLOCK_D, TMA)
        b = _tile(w, column, d, columns, D, BLOCK_N, BLOCK_D, TMA)
        z = tl.dot(a, tl.trans(b), z, input_precision="ieee")
    j = column + tl.arange(0, BLOCK_N)
    return z + tl.load(bias + j, mask=j < columns, other=float("-inf"))[None, :]


@_jit
def _mos_nll_forward_kernel(
    h, w, bias, peaks, totals, rows, columns, each,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    TMA: tl.constexpr, FLATTEN: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BLOCK_M
    part = tl.program_id(1)
    peak = tl.full([BLOCK_M], LOWEST, dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    last = tl.minimum((part + 1) * each, tl.cdiv(columns, BLOCK_N))
    for tile in tl.range(part * each, last, flatten=FLATTEN):
        z = _logits(h, w, bias, row, tile * BLOCK_N, rows, columns, D, BLOCK_M, BLOCK_N, BLOCK_D, TMA)
        higher = tl.maximum(peak, tl.max(z, axis=1))
        total = total * tl.exp(peak - higher) + tl.sum(tl.exp(z - higher[:, None]), axis=1)
        peak = higher
    i = row + tl.arange(0, BLOCK_M)
    at = part.to(tl.int64) * rows + i
    tl.store(peaks + at, peak, mask=i < rows)
    tl.store(totals + at, total, mask=i < rows)


@_jit
def _mos_nll_mixture_kernel(
    h, log_pi, w, w_stride_v, w_stride_d, bias, targets, peaks, totals, nll, r, peak_out, total_out, rows, K, V, parts,
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
    total = tl.sum(part_total * tl.exp(part_peak - peak[:, None]), axis=1)
    total = tl.where(k < K, total, 1.0)
    tl.store(peak_out + i, peak, mask=k < K)
    tl.store(total_out + i, total, mask=k < K)

    y = tl.load(targets + token).to(tl.int64)
    known = (y >= 0) & (y < V)  # else nothing is read, and the loss is NaN
    target = tl.zeros([BLOCK_K], dtype=tl.float32) + tl.load(bias + y, mask=known, other=float("nan"))
    for d in range(0, D, BLOCK_D):
        j = d + tl.arange(0, BLOCK_D)
        a = tl.load(h + i[:, None] * WIDTH + j[None, :], mask=(k < K)[:, None] & (j < D)[None, :], other=0.0)
        b = tl.load(w + y * w_stride_v + j * w_stride_d, mask=(j < D) & known, other=0.0).to(a.dtype)
        target += tl.sum(a.to(tl.float32) * b.to(tl.float32)[None, :], axis=1)

    joint = tl.load(log_pi + i, mask=k < K, other=float("-inf")).to(tl.float32) + (target - peak - tl.log(total))
    joint = tl.where(k < K, joint, float("-inf"))  # log pi_k p_k(y)
    top = tl.maximum(tl.max(joint, axis=0), LOWEST)
    log_p = top + tl.log(tl.sum(tl.exp(joint - top), axis=0))
    tl.store(nll + token, -log_p)
    tl.store(r + i, tl.exp(joint - log_p), mask=k < K)


@_jit
def _mos_nll_dlogits_kernel(
    h, w, bias, targets, peaks, totals, shares, dz, sums, rows, columns, start, slab, each,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    TMA: tl.constexpr, FLATTEN: tl.constexpr, SUMS: tl.constexpr, SPARSE: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    row = block * BLOCK_M
    i = row + tl.arange(0, BLOCK_M)
    share = tl.load(shares + i, mask=i < rows, other=0.0)
    if SPARSE:  # noqa: SIM102 -- decided when compiling, the other at run time
        if tl.sum((share != 0.0).to(tl.int32), axis=0) == 0:
            return
    peak = tl.load(peaks + i, mask=i < rows, other=float("inf"))  # rows beyond the last: exp(z - inf) = 0
    factor = share / tl.load(totals + i, mask=i < rows, other=1.0)
    y = tl.load(targets + i, mask=i < rows, other=-1).to(tl.int32) - start
    part = tl.program_id(1)
    last = tl.minimum((part + 1) * each, tl.cdiv(columns, BLOCK_N))
    for tile in tl.range(part * each, last, flatten=FLATTEN):
        column = tile * BLOCK_N
        j = column + tl.arange(0, BLOCK_N)
        z = _logits(h, w, bias, row, column, rows, columns, D, BLOCK_M, BLOCK_N, BLOCK_D, TMA)
        g = tl.exp(z - peak[:, None]) * factor[:, None] - tl.where(j[None, :] == y[:, None], share[:, None], 0.0)
        if SUMS:
            tl.store(sums + block.to(tl.int64) * slab + j, tl.sum(g, axis=0))
        if TMA:
            dz.store([row, column], g.to(dz.dtype))
        else:  # the slab is whole tiles wide: only rows need a mask
            at = i.to(tl.int64)[:, None] * slab + j[None, :]
            tl.store(dz + at, g.to(dz.dtype.element_ty), mask=(i < rows)[:, None])
