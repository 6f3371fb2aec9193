"""Pack an LSTM's weights in Triton: cast, pad and mask them into one buffer in one pass, and unpack their gradients.

    pack       (4H, I), (4H, H), (4H,), (4H,) -> one buffer: (4H', I'), (4H', H'), (4H',), (4H',)
    unpack     their gradients -> (4H, I), (4H, H), (4H,), (4H,)

The mask of W_hh keeps an element if a Philox random number, a function of the seed and the element's index, is at least
p. The backward pass computes the mask again, so it is never stored. The minimal traffic of a pack is a float32 read and
a half-precision write, 6 bytes per weight.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
from torch import Tensor

from highrank.ops.jit import jit

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

WARPS = 2  # on an H200 the paper's layers take 15 to 40 % more time than the minimal traffic; 4 warps: 15 % slower


def pack_weights(
    w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor,
    inputs: int, hidden: int, dtype: torch.dtype, seed: Tensor | None, p: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return views (4H', I'), (4H', H'), (4H',), (4H',) of one buffer; with a `seed`, drop a share `p` of W_hh."""
    rows = 4 * hidden
    flat = torch.empty(rows * (inputs + hidden + 2), dtype=dtype, device=w_hh.device)
    sizes = (rows * inputs, rows * hidden, rows, rows)
    packed_ih, packed_hh, packed_b_ih, packed_b_hh = flat.split(sizes)
    views = packed_ih.view(rows, inputs), packed_hh.view(rows, hidden), packed_b_ih, packed_b_hh
    with torch.cuda.device_of(w_hh):
        _pack_kernel[(rows,)](
            *(w.contiguous() for w in (w_ih, w_hh, b_ih, b_hh)), *views, seed, _scale(seed, p), p,
            *(w_ih.shape[1], w_hh.shape[1], inputs, hidden),
            triton.next_power_of_2(inputs), _quarter(w_hh.shape[1], hidden), num_warps=WARPS,
        )  # fmt: skip
    return views


def unpack_gradients(
    g_ih: Tensor, g_hh: Tensor, gb_ih: Tensor, gb_hh: Tensor,
    shape_ih: torch.Size, shape_hh: torch.Size, dtype: torch.dtype, seed: Tensor | None, p: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of `pack_weights`' inputs, given those of its outputs."""
    rows, hidden = shape_hh
    grads = [torch.empty(s, dtype=dtype, device=g_hh.device) for s in (shape_ih, shape_hh, (rows,), (rows,))]
    with torch.cuda.device_of(g_hh):
        _unpack_kernel[(rows,)](
            *(g.contiguous() for g in (g_ih, g_hh, gb_ih, gb_hh)), *grads, seed, _scale(seed, p), p,
            *(shape_ih[1], hidden, g_ih.shape[1], g_hh.shape[1]),
            triton.next_power_of_2(shape_ih[1]), _quarter(hidden, g_hh.shape[1]), num_warps=WARPS,
        )  # fmt: skip
    return grads[0], grads[1], grads[2], grads[3]


def _scale(seed: Tensor | None, p: float) -> float:
    """Return the factor of kept weights, which preserves their mean; at p = 1 none is kept."""
    return 1.0 if seed is None or p == 1 else 1 / (1 - p)


def _quarter(hidden: int, wide: int) -> int:
    """Return the length of a quarter row of W_hh, the same for packing and unpacking, so that their masks agree."""
    return max(1, triton.next_power_of_2(max(hidden, wide)) // 4)


@jit()
def _copy_masked(source, out, width, out_width, seed, row, scale, p, QUARTER: tl.constexpr):
    """Copy a row of W_hh or of its gradient, `width` of `out_width` elements, masked if there is a seed.

    Philox draws four numbers at a time, one for each quarter of the row.
    """
    j = tl.arange(0, QUARTER)
    if seed is not None:
        a, b, c, d = tl.rand4x(tl.load(seed), (row * QUARTER + j).to(tl.int32))
        _copy_part(source, out, width, out_width, j, tl.where(a >= p, scale, 0.0))
        _copy_part(source, out, width, out_width, QUARTER + j, tl.where(b >= p, scale, 0.0))
        _copy_part(source, out, width, out_width, 2 * QUARTER + j, tl.where(c >= p, scale, 0.0))
        _copy_part(source, out, width, out_width, 3 * QUARTER + j, tl.where(d >= p, scale, 0.0))
    else:
        for part in tl.static_range(4):
            _copy_part(source, out, width, out_width, part * QUARTER + j, 1.0)


@jit()
def _copy_part(source, out, width, out_width, j, factor):
    w = tl.load(source + j, mask=j < width, other=0.0).to(tl.float32) * factor
    tl.store(out + j, w.to(out.dtype.element_ty), mask=j < out_width)


@jit()
def _pack_kernel(
    w_ih, w_hh, b_ih, b_hh, out_ih, out_hh, out_b_ih, out_b_hh, seed, scale, p, INPUTS, HIDDEN, I_WIDE, H_WIDE,
    BLOCK_I: tl.constexpr, QUARTER: tl.constexpr,
):  # fmt: skip
    """Write one row of the padded gates per program; each of the four blocks of rows grows from H to H'."""
    row = tl.program_id(0).to(tl.int64)
    unit = row % H_WIDE
    source = row // H_WIDE * HIDDEN + unit
    real = unit < HIDDEN
    i = tl.arange(0, BLOCK_I)
    w = tl.load(w_ih + source * INPUTS + i, mask=real & (i < INPUTS), other=0.0)
    tl.store(out_ih + row * I_WIDE + i, w.to(out_ih.dtype.element_ty), mask=i < I_WIDE)
    width = tl.where(real, HIDDEN, 0)  # a padded row copies nothing and is all zeros
    _copy_masked(w_hh + source * HIDDEN, out_hh + row * H_WIDE, width, H_WIDE, seed, source, scale, p, QUARTER)
    tl.store(out_b_ih + row, tl.load(b_ih + source, mask=real, other=0.0).to(out_b_ih.dtype.element_ty))
    tl.store(out_b_hh + row, tl.load(b_hh + source, mask=real, other=0.0).to(out_b_hh.dtype.element_ty))


@jit()
def _unpack_kernel(
    g_ih, g_hh, gb_ih, gb_hh, out_ih, out_hh, out_b_ih, out_b_hh, seed, scale, p, INPUTS, HIDDEN, I_WIDE, H_WIDE,
    BLOCK_I: tl.constexpr, QUARTER: tl.constexpr,
):  # fmt: skip
    """Write one row of the gates' gradients per program."""
    row = tl.program_id(0).to(tl.int64)
    source = row // HIDDEN * H_WIDE + row % HIDDEN
    i = tl.arange(0, BLOCK_I)
    g = tl.load(g_ih + source * I_WIDE + i, mask=i < INPUTS, other=0.0)
    tl.store(out_ih + row * INPUTS + i, g.to(out_ih.dtype.element_ty), mask=i < INPUTS)
    _copy_masked(g_hh + source * H_WIDE, out_hh + row * HIDDEN, HIDDEN, HIDDEN, seed, row, scale, p, QUARTER)
    tl.store(out_b_ih + row, tl.load(gb_ih + source).to(out_b_ih.dtype.element_ty))
    tl.store(out_b_hh + row, tl.load(gb_hh + source).to(out_b_hh.dtype.element_ty))
