"""x W^T + b, at the matrix unit's full speed for sizes that are not round.

In half precision NVIDIA's fast matrix kernels want rows that start at whole 16 bytes. The paper's 620 and 650 hidden
units do not, and cost two to three times as much; with a few zeros at the end of every row they do. Zeros are exact.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from highrank.ops import HALF, autocast_dtype
from highrank.ops.pad import cut, pad

MULTIPLE = 8  # elements of 2 bytes


def aligned_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """(..., I), (O, I), (O,) -> (..., O), in the autocast dtype where autocast is on."""
    device, dtype = x.device.type, autocast_dtype(x)
    if device == "cuda" and dtype in HALF and not torch.compiler.is_compiling():  # inductor pads by itself
        with torch.autocast(device, enabled=False):
            return padded_linear(x, weight, bias, dtype)
    return F.linear(x, weight, bias)


def padded_linear(x: Tensor, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> Tensor:
    """`F.linear` in `dtype` through sizes padded to multiples of 8."""
    out, inputs = weight.shape
    wide_out, wide_in = out + -out % MULTIPLE, inputs + -inputs % MULTIPLE
    x = pad(x, (*x.shape[:-1], wide_in), dtype)
    y = F.linear(x, pad(weight, (wide_out, wide_in), dtype), pad(bias, (wide_out,), dtype))
    return cut(y, (*y.shape[:-1], out))
