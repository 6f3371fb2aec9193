"""An LSTM layer through zero-padded sizes, the road to cuDNN's persistent kernel.

That kernel keeps the recurrent weights on the chip from step to step. It wants float16, I and H in multiples of 128 (H
up to 1024) and B in multiples of 8 (up to 128); beyond those limits aligned sizes still help. Padding is exact: a
padded unit has zero weights and biases, so its cell and output stay zero for ever, and it receives no gradient.

cuDNN also wants its weights in one buffer: W_ih, W_hh, b_ih, b_hh, one after the other. With Triton, one kernel writes
that buffer (cast, padded, W_hh masked) and one takes its gradient back; plain torch does the same in some twenty.

Shapes: T time steps, B batch, I inputs, H hidden units, as in `lstm`; I' and H' are the padded sizes.
"""

from typing import Any

import torch
from torch import Tensor

from highrank.ops import HALF, has_kernels
from highrank.ops.dropout import weight_dropout
from highrank.ops.lstm import State, kernel, torch_lstm
from highrank.ops.pad import cut, pad

SIZE_MULTIPLE, BATCH_MULTIPLE = 128, 8


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
    """`lstm` in `dtype` through zero-padded sizes and batch; the same values and gradients."""
    length, batch, inputs = x.shape
    hidden = w_hh.shape[1]
    wide_b, wide_i, wide_h = (
        n + -n % m for n, m in ((batch, batch_multiple), (inputs, size_multiple), (hidden, size_multiple))
    )
    if dtype in HALF and has_kernels(x.device):
        # The mask is a function of this number, so that backward draws the same one again.
        seed = torch.randint(2**62, (1,), device=w_hh.device) if weight_drop > 0 else None
        weights = _PackedWeights.apply(w_ih, w_hh, b_ih, b_hh, wide_i, wide_h, dtype, seed, weight_drop)
    else:
        weights = pad_weights(w_ih, weight_dropout(w_hh, weight_drop), b_ih, b_hh, wide_i, wide_h, dtype)
    x = pad(x, (length, wide_b, wide_i), dtype)
    h, c = (pad(s, (wide_b, wide_h), dtype) for s in state)
    output, (h, c) = torch_lstm(x, h, c, *weights)
    return cut(output, (length, batch, hidden)), (h[:batch, :hidden], c[:batch, :hidden])


def pad_weights(
    w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor, wide_i: int, wide_h: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(4H, I), (4H, H), (4H,), (4H,) -> (4H', I'), (4H', H'), (4H',), (4H',), gate by gate."""
    gates = (4, w_hh.shape[1])

    def each_gate(w: Tensor, *wide: int) -> Tensor:
        return pad(w.unflatten(0, gates), (4, wide_h, *wide), dtype).flatten(0, 1)

    return each_gate(w_ih, wide_i), each_gate(w_hh, wide_h), each_gate(b_ih), each_gate(b_hh)


class _PackedWeights(torch.autograd.Function):
    """Weights -> dropped, cast and padded views of one buffer, in cuDNN's order."""

    @staticmethod
    def forward(
        ctx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor,
        inputs: int, hidden: int, dtype: torch.dtype, seed: Tensor | None, weight_drop: float,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        ctx.back = w_ih.shape, w_hh.shape, w_hh.dtype, seed, weight_drop
        return kernel.pack_weights(w_ih, w_hh, b_ih, b_hh, inputs, hidden, dtype, seed, weight_drop)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return *_UnpackedGradients.apply(*grads, *ctx.back), *[None] * 5


class _UnpackedGradients(torch.autograd.Function):
    """The transpose of `_PackedWeights`, which is linear: each is the other's backward pass."""

    @staticmethod
    def forward(
        ctx: Any, g_ih: Tensor, g_hh: Tensor, gb_ih: Tensor, gb_hh: Tensor,
        shape_ih: torch.Size, shape_hh: torch.Size, dtype: torch.dtype, seed: Tensor | None, weight_drop: float,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        ctx.back = g_ih.shape[1], g_hh.shape[1], g_hh.dtype, seed, weight_drop
        return kernel.unpack_gradients(g_ih, g_hh, gb_ih, gb_hh, shape_ih, shape_hh, dtype, seed, weight_drop)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return *_PackedWeights.apply(*grads, *ctx.back), *[None] * 5
