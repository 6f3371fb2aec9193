"""One LSTM layer over a sequence, with weights passed in, so that a caller may mask them anew at every call.

    i, f, g, o = W_ih x_t + b_ih + W_hh h_(t-1) + b_hh;   c_t = s(f) c_(t-1) + s(i) tanh(g);   h_t = s(o) tanh(c_t)

Shapes: T time steps, B batch, I inputs, H hidden units; gates stacked in torch's order (input, forget, cell, output).

In half precision on an NVIDIA GPU the sizes are zero-padded: cuDNN's persistent kernel, which keeps the recurrent
weights on the chip from step to step, wants float16, I and H in multiples of 128 (H up to 1024) and B in multiples of
8 (up to 128), and beyond those limits aligned sizes still help. Padding is exact: a padded unit has zero weights and
biases, so its cell and output stay zero for ever, and it receives no gradient.
"""

import warnings
from typing import Any

import torch
from torch import Tensor

from highrank.ops import HALF

State = tuple[Tensor, Tensor]  # h and c, (B, H) each

SIZE_MULTIPLE, BATCH_MULTIPLE = 128, 8


def lstm(x: Tensor, state: State, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> tuple[Tensor, State]:
    """(T, B, I), two (B, H), (4H, I), (4H, H), (4H,), (4H,) -> (T, B, H) and the last state.

    Runs in the autocast dtype where autocast is on, else in x's.
    """
    device = x.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
    with torch.autocast(device, enabled=False):
        if device == "cuda" and dtype in HALF:
            return padded_lstm(x, state, w_ih, w_hh, b_ih, b_hh, dtype)
        tensors = (tensor.to(dtype) for tensor in (x, *state, w_ih, w_hh, b_ih, b_hh))
        return _lstm(*tensors)


def padded_lstm(
    x: Tensor,
    state: State,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor,
    b_hh: Tensor,
    dtype: torch.dtype,
    size_multiple: int = SIZE_MULTIPLE,
    batch_multiple: int = BATCH_MULTIPLE,
) -> tuple[Tensor, State]:
    """`lstm` in `dtype` through zero-padded sizes and batch; the same values and gradients."""
    _, batch, inputs = x.shape
    hidden = w_hh.shape[1]
    more_b, more_i, more_h = -batch % batch_multiple, -inputs % size_multiple, -hidden % size_multiple
    x = _pad(x, (0, more_b, more_i), dtype)
    h, c = (_pad(s, (more_b, more_h), dtype) for s in state)
    # Gate by gate: each of the four blocks of rows grows from H to H + more_h.
    w_ih = _pad(w_ih.unflatten(0, (4, hidden)), (0, more_h, more_i), dtype).flatten(0, 1)
    w_hh = _pad(w_hh.unflatten(0, (4, hidden)), (0, more_h, more_h), dtype).flatten(0, 1)
    b_ih, b_hh = (_pad(b.unflatten(0, (4, hidden)), (0, more_h), dtype).flatten() for b in (b_ih, b_hh))
    output, (h, c) = _lstm(x, h, c, w_ih, w_hh, b_ih, b_hh)
    return output[:, :batch, :hidden], (h[:batch, :hidden], c[:batch, :hidden])


def _pad(x: Tensor, more: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Zeros at the end of every dimension, and `dtype`, in one copy each way; casts and pads apart would make three."""
    return _Pad.apply(x, more, dtype) if any(more) else x.to(dtype)


class _Pad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, more: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        ctx.inside, ctx.dtype = tuple(slice(n) for n in x.shape), x.dtype
        padded = x.new_zeros([n + m for n, m in zip(x.shape, more, strict=True)], dtype=dtype)
        padded[ctx.inside] = x
        return padded

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad[ctx.inside].to(ctx.dtype, memory_format=torch.contiguous_format), None, None


def _lstm(
    x: Tensor, h: Tensor, c: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> tuple[Tensor, State]:
    # `train=True` even in evaluation: with no dropout inside it changes nothing but lets cuDNN run backward there,
    # which dynamic evaluation needs.
    with warnings.catch_warnings():
        # Re-masked weights cannot be one cuDNN buffer; the copy that torch warns about is part of the method.
        warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
        output, h_last, c_last = torch.lstm(
            x, [h[None], c[None]], [w_ih, w_hh, b_ih, b_hh], True, 1, 0.0, True, False, False
        )
    return output, (h_last[0], c_last[0])
