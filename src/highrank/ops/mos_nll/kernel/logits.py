"""A tile of logits, which both passes compute, and how their kernels are compiled and launched."""

# mypy: disable-error-code="no-untyped-def"
# Kernel arguments have no Python types. With this import, `tl.constexpr` is not evaluated where Triton is missing.
from __future__ import annotations

from typing import Any

from torch import Tensor

from highrank.ops.jit import jit
from highrank.ops.mos_nll.kernel.plan import Config

try:
    import triton.language as tl
    from triton.tools.tensor_descriptor import TensorDescriptor

    LOG2E = tl.constexpr(1.4426950408889634)
except ImportError:
    LOG2E = None


def tile_source(x: Tensor, block_rows: int, block_columns: int, tma: bool) -> Any:
    """Return what a kernel reads or writes tiles of x through: a TMA descriptor, or x itself."""
    return TensorDescriptor.from_tensor(x, [block_rows, block_columns]) if tma else x


def launch_options(rows: Tensor, width: int, config: Config) -> dict[str, Any]:
    """Return the compile-time arguments of a kernel that calls `logits_tile`."""
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_D", "num_warps", "num_stages", "TMA", "FLATTEN")
    return {"H_WIDTH": rows.shape[1], "W_WIDTH": width, **dict(zip(names, config, strict=False))}


# These change from call to call: compiling again, say for a multiple of 16, would stall training.
mos_nll_jit = jit(
    do_not_specialize=["rows", "columns", "start", "each", "parts"],
    do_not_specialize_on_alignment=["peaks", "totals", "row_totals", "log_ps"],
)


@mos_nll_jit
def load_tile(source, row, column, rows, width, R: tl.constexpr, C: tl.constexpr, TMA: tl.constexpr):
    """Load source[row : row + R, column : column + C], with zeros outside (rows, width)."""
    if TMA:
        tile = source.load([row, column])
    else:
        i = row + tl.arange(0, R)
        j = column + tl.arange(0, C)
        inside = (i < rows)[:, None] & (j < width)[None, :]
        tile = tl.load(source + i.to(tl.int64)[:, None] * width + j[None, :], mask=inside, other=0.0)
    return tile


@mos_nll_jit
def logits_tile(
    h, w, bias, row, column, rows, columns, H_WIDTH: tl.constexpr, W_WIDTH: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """Compute a (BLOCK_M, BLOCK_N) tile of h W^T + b in float32, with -inf beyond the last word."""
    z = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for d in range(0, W_WIDTH, BLOCK_D):
        x = load_tile(h, row, d, rows, H_WIDTH, BLOCK_M, BLOCK_D, TMA)
        y = load_tile(w, column, d, columns, W_WIDTH, BLOCK_N, BLOCK_D, TMA)
        z = tl.dot(x, tl.trans(y), z, input_precision="ieee")
    j = column + tl.arange(0, BLOCK_N)
    return z + tl.load(bias + j, mask=j < columns, other=float("-inf"))[None, :]
