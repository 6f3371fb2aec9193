"""One LSTM layer over a sequence, with weights passed in, so that a caller may mask them anew at every call.

    i, f, g, o = W_ih x_t + b_ih + W_hh h_(t-1) + b_hh;   c_t = s(f) c_(t-1) + s(i) tanh(g);   h_t = s(o) tanh(c_t)

Shapes: T time steps, B batch, I inputs, H hidden units; gates stacked in torch's order (input, forget, cell, output).

In half precision on an NVIDIA GPU the sizes are zero-padded: cuDNN's persistent kernel, which keeps the recurrent
weights on the chip from step to step, wants float16, I and H in multiples of 128 (H up to 1024) and B in multiples of
8 (up to 128), and beyond those limits aligned sizes still help. Padding is exact: a padded unit has zero weights and
biases, so its cell and output stay zero for ever, and it receives no gradient.
"""

import warnings

import torch
import torch.nn.functional as F
from torch import Tensor

State = tuple[Tensor, Tensor]  # h and c, (B, H) each

HALF = (torch.float16, torch.bfloat16)
SIZE_MULTIPLE, BATCH_MULTIPLE = 128, 8


def lstm(x: Tensor, state: State, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> tuple[Tensor, State]:
    """(T, B, I), two (B, H), (4H, I), (4H, H), (4H,), (4H,) -> (T, B, H) and the last state.

    Runs in the autocast dtype where autocast is on, else in x's.
    """
    device = x.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
    with torch.autocast(device, enabled=False):
        x, w_ih, w_hh, b_ih, b_hh = (tensor.to(dtype) for tensor in (x, w_ih, w_hh, b_ih, b_hh))
        h, c = (s.to(dtype) for s in state)
        if device == "cuda" and dtype in HALF:
            return padded_lstm(x, (h, c), w_ih, w_hh, b_ih, b_hh)
        return _lstm(x, (h, c), w_ih, w_hh, b_ih, b_hh)


def padded_lstm(
    x: Tensor,
    state: State,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor,
    b_hh: Tensor,
    size_multiple: int = SIZE_MULTIPLE,
    batch_multiple: int = BATCH_MULTIPLE,
) -> tuple[Tensor, State]:
    """`lstm` through zero-padded sizes and batch; the same values and gradients."""
    _, batch, inputs = x.shape
    hidden = w_hh.shape[1]
    more_b, more_i, more_h = -batch % batch_multiple, -inputs % size_multiple, -hidden % size_multiple
    if not (more_b or more_i or more_h):
        return _lstm(x, state, w_ih, w_hh, b_ih, b_hh)
    x = F.pad(x, (0, more_i, 0, more_b))
    h, c = (F.pad(s, (0, more_h, 0, more_b)) for s in state)
    # Gate by gate: each of the four blocks of rows grows from H to H + more_h.
    w_ih = F.pad(w_ih.unflatten(0, (4, hidden)), (0, more_i, 0, more_h)).flatten(0, 1)
    w_hh = F.pad(w_hh.unflatten(0, (4, hidden)), (0, more_h, 0, more_h)).flatten(0, 1)
    b_ih, b_hh = (F.pad(b.unflatten(0, (4, hidden)), (0, more_h)).flatten() for b in (b_ih, b_hh))
    output, (h, c) = _lstm(x, (h, c), w_ih, w_hh, b_ih, b_hh)
    return output[:, :batch, :hidden], (h[:batch, :hidden], c[:batch, :hidden])


def _lstm(x: Tensor, state: State, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> tuple[Tensor, State]:
    h, c = state
    # `train=True` even in evaluation: with no dropout inside it changes nothing but lets cuDNN run backward there,
    # which dynamic evaluation needs.
    with warnings.catch_warnings():
        # Re-masked weights cannot be one cuDNN buffer; the copy that torch warns about is part of the method.
        warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
        output, h_last, c_last = torch.lstm(
            x, [h[None], c[None]], [w_ih, w_hh, b_ih, b_hh], True, 1, 0.0, True, False, False
        )
    return output, (h_last[0], c_last[0])
