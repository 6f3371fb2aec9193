"""An LSTM layer with zero-padded sizes, to reach cuDNN's persistent kernel.

That kernel keeps the recurrent weights on the chip from step to step. It needs float16, I and H in multiples of 128 (H
up to 1024) and B in multiples of 8 (up to 128); beyond those limits aligned sizes still help. It is faster for small
batches only: with larger ones the matrix products of the ordinary kernels are efficient, so I is padded to a size that
the persistent kernel does not accept.
Padding is exact: a padded unit has zero weights and biases, so its cell and output stay zero, and it receives no
gradient.

cuDNN also needs its weights in one buffer: W_ih, W_hh, b_ih, b_hh, in this order. With Triton, one kernel writes that
buffer (cast, padded, W_hh masked) and one kernel reads its gradient back; plain torch needs about twenty.

Shapes: T time steps, B batch, I inputs, H hidden units, as in `lstm`; I' and H' are the padded sizes.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from highrank.ops import HALF, has_kernels
from highrank.ops.dropout import weight_dropout
from highrank.ops.lstm.layer import State, torch_lstm
from highrank.ops.pad import cut, pad

SIZE_MULTIPLE = 128
BATCH_MULTIPLE = 8
PERSISTENT_BATCH = 64  # columns up to which the persistent kernel is the faster one on an H200 (benchmarks/lstm.py)


def padded_lstm(
    x: Tensor,
    state: State,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor,
    b_hh: Tensor,
    weight_drop: float,
    dtype: torch.dtype,
    size_multiple: int = SIZE_MULTIPLE,
    batch_multiple: int = BATCH_MULTIPLE,
) -> tuple[Tensor, State]:
    """Compute `lstm` in `dtype` with zero-padded sizes and batch; values and gradients are the same."""
    length, batch, inputs = x.shape
    hidden = w_hh.shape[1]
    wide_batch = batch + -batch % batch_multiple
    wide_inputs = inputs + -inputs % size_multiple
    wide_hidden = hidden + -hidden % size_multiple
    if wide_batch > PERSISTENT_BATCH:
        wide_inputs += batch_multiple  # torch chooses the persistent kernel for multiples of 128 only
    if dtype in HALF and has_kernels(x.device):
        # The mask is a function of the seed, so that the backward pass can compute it again.
        seed = torch.randint(2**62, (1,), device=w_hh.device) if weight_drop > 0 else None
        weights = _PackedWeights.apply(w_ih, w_hh, b_ih, b_hh, wide_inputs, wide_hidden, dtype, seed, weight_drop)
    else:
        w_hh = weight_dropout(w_hh, weight_drop)
        weights = pad_weights(w_ih, w_hh, b_ih, b_hh, wide_inputs, wide_hidden, dtype)
    x = pad(x, (length, wide_batch, wide_inputs), dtype)
    h, c = (pad(s, (wide_batch, wide_hidden), dtype) for s in state)
    output, (h, c) = torch_lstm(x, h, c, *weights)
    return cut(output, (length, batch, hidden)), (h[:batch, :hidden], c[:batch, :hidden])


def pad_weights(
    w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor, wide_inputs: int, wide_hidden: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pad gate by gate, in plain torch: (4H, I), (4H, H), (4H,), (4H,) -> (4H', I'), (4H', H'), (4H',), (4H',)."""
    gates = (4, w_hh.shape[1])

    def pad_gates(w: Tensor, *widths: int) -> Tensor:
        return pad(w.unflatten(0, gates), (4, wide_hidden, *widths), dtype).flatten(0, 1)

    return pad_gates(w_ih, wide_inputs), pad_gates(w_hh, wide_hidden), pad_gates(b_ih), pad_gates(b_hh)


class _PackedWeights(torch.autograd.Function):
    """Weights -> dropped, cast and padded views of one buffer, in cuDNN's order."""

    @staticmethod
    def forward(
        ctx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor,
        inputs: int, hidden: int, dtype: torch.dtype, seed: Tensor | None, weight_drop: float,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        from highrank.ops.lstm import kernel  # lazily: importing Triton is slow, and it may be missing

        ctx.unpack_arguments = w_ih.shape, w_hh.shape, w_hh.dtype, seed, weight_drop
        return kernel.pack_weights(w_ih, w_hh, b_ih, b_hh, inputs, hidden, dtype, seed, weight_drop)

    @staticmethod
    @once_differentiable  # as cuDNN's LSTM is
    def backward(ctx: Any, g_ih: Tensor, g_hh: Tensor, gb_ih: Tensor, gb_hh: Tensor) -> tuple[Tensor | None, ...]:
        from highrank.ops.lstm import kernel

        return *kernel.unpack_gradients(g_ih, g_hh, gb_ih, gb_hh, *ctx.unpack_arguments), *[None] * 5
