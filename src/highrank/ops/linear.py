"""x W^T + b at full matrix-unit speed for sizes that are not multiples of 8.

In half precision, NVIDIA's fast matrix kernels need rows that start at multiples of 16 bytes. The paper's layers of 620
and 650 units do not have such rows and run two to three times slower. Zeros at the end of every row align them, and
leave the result exactly the same.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from highrank.ops import HALF, autocast_dtype
from highrank.ops.pad import cut, pad

MULTIPLE = 8  # elements of 2 bytes


class AlignedLinear(nn.Linear):
    """`nn.Linear`, computed by `aligned_linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return aligned_linear(x, self.weight, self.bias)


def aligned_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute x W^T + b, (..., I), (O, I), (O,) -> (..., O), in the autocast dtype where autocast is on."""
    device = x.device.type
    dtype = autocast_dtype(x)
    if device == "cuda" and dtype in HALF and not torch.compiler.is_compiling():  # inductor pads by itself
        with torch.autocast(device, enabled=False):
            return padded_linear(x, weight, bias, dtype)
    return F.linear(x, weight, bias)


def padded_linear(x: Tensor, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> Tensor:
    """Compute `F.linear` in `dtype` with both sizes padded to multiples of 8."""
    outputs, inputs = weight.shape
    wide_outputs = outputs + -outputs % MULTIPLE
    wide_inputs = inputs + -inputs % MULTIPLE
    x = pad(x, (*x.shape[:-1], wide_inputs), dtype)
    y = F.linear(x, pad(weight, (wide_outputs, wide_inputs), dtype), pad(bias, (wide_outputs,), dtype))
    return cut(y, (*y.shape[:-1], outputs))
