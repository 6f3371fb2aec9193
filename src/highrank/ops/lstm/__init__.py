"""One LSTM layer over a sequence, with weights passed in, and DropConnect on the recurrent ones.

    i, f, g, o = W_ih x_t + b_ih + W_hh h_(t-1) + b_hh;   c_t = s(f) c_(t-1) + s(i) tanh(g);   h_t = s(o) tanh(c_t)

Shapes: T time steps, B batch, I inputs, H hidden units; gates stacked in torch's order (input, forget, cell, output).
In half precision on an NVIDIA GPU, `padded.py` finds cuDNN's fast path; everywhere else this is torch's own LSTM.
"""

import warnings

import torch
from torch import Tensor

from highrank.ops import HALF, autocast_dtype
from highrank.ops.dropout import weight_dropout

State = tuple[Tensor, Tensor]  # h and c, (B, H) each


def lstm(
    x: Tensor,
    state: State,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor,
    b_hh: Tensor,
    weight_drop: float = 0.0,
) -> tuple[Tensor, State]:
    """(T, B, I), two (B, H), (4H, I), (4H, H), (4H,), (4H,) -> (T, B, H) and the last state.

    Runs in the autocast dtype where autocast is on, else in x's. `weight_drop` is the share of W_hh that is dropped,
    by a mask of this call's own.
    """
    device, dtype = x.device.type, autocast_dtype(x)
    with torch.autocast(device, enabled=False):
        if device == "cuda" and dtype in HALF:
            from highrank.ops.lstm.padded import padded_lstm

            return padded_lstm(x, state, w_ih, w_hh, b_ih, b_hh, weight_drop, dtype)
        w_hh = weight_dropout(w_hh, weight_drop)
        tensors = (tensor.to(dtype) for tensor in (x, *state, w_ih, w_hh, b_ih, b_hh))
        return torch_lstm(*tensors)


def torch_lstm(
    x: Tensor, h: Tensor, c: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> tuple[Tensor, State]:
    """torch's one-layer LSTM on tensors of one dtype."""
    # `train=True` even in evaluation: with no dropout inside it changes nothing but lets cuDNN run backward there,
    # which dynamic evaluation needs.
    with warnings.catch_warnings():
        # Masked weights are not one cuDNN buffer; the copy that torch warns about is part of the method.
        warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
        output, h_last, c_last = torch.lstm(
            x, [h[None].contiguous(), c[None].contiguous()], [w_ih, w_hh, b_ih, b_hh], True, 1, 0.0, True, False, False
        )
    return output, (h_last[0], c_last[0])
