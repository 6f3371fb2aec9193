"""Step 5 for sampled rows: products of a slab of dz when only the device knows how many rows there are.

    dh += dz W          [dW, db] = dz^T [h, 1]

A library product needs its sizes on the host, which would have to wait for the device and cannot do so in a CUDA graph.
These kernels are launched for all M rows and read the number of rows from `kept`, (1,) int32: in the first product,
programs beyond it return at once; in the second, the sum ends there. Rows of dz from there to the end of a block must
be zero.
"""

# mypy: disable-error-code="no-untyped-def"
# Kernel arguments have no Python types. With this import, `tl.constexpr` is not evaluated where Triton is missing.
from __future__ import annotations

from typing import Any

from torch import Tensor

from highrank.ops.mos_nll.kernel.logits import load_tile, mos_nll_jit, tile_source
from highrank.ops.mos_nll.kernel.plan import Config

try:
    import triton.language as tl
except ImportError:
    tl = None


def add_row_gradients_(dh: Tensor, dz: Tensor, w: Tensor, words: int, kept: Tensor, config: Config) -> None:
    """Add dz (M, C) times `words` rows of w (C, D padded) to dh (M, D padded), in float32."""
    m, width = dh.shape
    _mos_nll_dh_kernel[(-(-width // config.block_n), -(-m // config.block_m))](
        tile_source(dz, config.block_m, config.block_d, config.tma),
        tile_source(w, config.block_d, config.block_n, config.tma),
        *(dh, kept, m, words, dz.shape[1]),
        **_launch_options(width, config),
    )


def write_weight_gradients(
    dz: Tensor, rows: Tensor, words: int, d: int, dw: Tensor | None, db: Tensor | None, unscale: Tensor | None,
    kept: Tensor, config: Config,
) -> None:  # fmt: skip
    """Split dz^T (C, M) times rows (M, D padded) = [dW, db, ...] into dw (C, D) and db (C,); either may be None."""
    m, width = rows.shape
    _mos_nll_dw_kernel[(-(-width // config.block_n), -(-words // config.block_m))](
        tile_source(dz, config.block_d, config.block_m, config.tma),
        tile_source(rows, config.block_d, config.block_n, config.tma),
        *(dw, db, unscale, kept, m, words, dz.shape[1], d),
        **_launch_options(width, config),
    )


def _launch_options(width: int, config: Config) -> dict[str, Any]:
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_D", "num_warps", "num_stages", "TMA")
    return {"WIDTH": width, **dict(zip(names, config, strict=False))}


@mos_nll_jit
def _mos_nll_dh_kernel(
    dz, w, dh, kept, rows, columns, slab,
    WIDTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * BLOCK_N  # neighbouring programs share the larger operand, dz
    row = tl.program_id(1) * BLOCK_M
    if row >= tl.load(kept):
        return
    i = row + tl.arange(0, BLOCK_M)
    j = column + tl.arange(0, BLOCK_N)
    at = dh + i.to(tl.int64)[:, None] * WIDTH + j[None, :]
    inside = (i < rows)[:, None] & (j < WIDTH)[None, :]
    total = tl.load(at, mask=inside, other=0.0)
    for word in range(0, columns, BLOCK_D):
        x = load_tile(dz, row, word, rows, slab, BLOCK_M, BLOCK_D, TMA)
        y = load_tile(w, word, column, columns, WIDTH, BLOCK_D, BLOCK_N, TMA)
        total = tl.dot(x, y, total, input_precision="ieee")
    tl.store(at, total, mask=inside)


@mos_nll_jit
def _mos_nll_dw_kernel(
    dz, h, dw, db, unscale, kept, rows, columns, slab, D: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * BLOCK_N
    word = tl.program_id(1) * BLOCK_M
    total = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for row in range(0, tl.load(kept), BLOCK_D):
        x = load_tile(dz, row, word, rows, slab, BLOCK_D, BLOCK_M, TMA)
        y = load_tile(h, row, column, rows, WIDTH, BLOCK_D, BLOCK_N, TMA)
        total = tl.dot(tl.trans(x), y, total, input_precision="ieee")
    total *= 1.0 if unscale is None else tl.load(unscale)
    i = (word + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    j = (column + tl.arange(0, BLOCK_N))[None, :]
    if dw is not None:
        tl.store(dw + i * D + j, total.to(dw.dtype.element_ty), mask=(i < columns) & (j < D))
    if db is not None:
        tl.store(db + i + (j - D), total, mask=(i < columns) & (j == D))
