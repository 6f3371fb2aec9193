"""One LSTM layer over a sequence, with weights passed in and DropConnect on the recurrent ones.

    i, f, g, o = W_ih x_t + b_ih + W_hh h_(t-1) + b_hh;   c_t = s(f) c_(t-1) + s(i) tanh(g);   h_t = s(o) tanh(c_t)

Shapes: T time steps, B batch, I inputs, H hidden units; gates are stacked in torch's order (input, forget, cell,
output). In half precision on an NVIDIA GPU, `padded.py` pads sizes to reach cuDNN's fast path; everywhere else this is
torch's own LSTM (`layer.py`).
"""

import torch
from torch import Tensor

from highrank.ops import HALF, autocast_dtype
from highrank.ops.dropout import weight_dropout
from highrank.ops.lstm.layer import State, short_lstm, torch_lstm
from highrank.ops.lstm.padded import padded_lstm

__all__ = ["State", "lstm"]


def lstm(
    x: Tensor,
    state: State,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor,
    b_hh: Tensor,
    weight_drop: float = 0.0,
) -> tuple[Tensor, State]:
    """Return the outputs, (T, B, H), and the last state, from (T, B, I), two (B, H), (4H, I), (4H, H), (4H,), (4H,).

    Computes in the autocast dtype where autocast is on, else in x's dtype. `weight_drop` is the share of W_hh that is
    dropped, with a new mask at every call.
    """
    device = x.device.type
    dtype = autocast_dtype(x)
    with torch.autocast(device, enabled=False):
        if device == "cuda" and dtype in HALF:
            return padded_lstm(x, state, w_ih, w_hh, b_ih, b_hh, weight_drop, dtype)
        w_hh = weight_dropout(w_hh, weight_drop)
        layer = short_lstm if device == "cpu" and len(x) <= 8 else torch_lstm
        return layer(*(tensor.to(dtype) for tensor in (x, *state, w_ih, w_hh, b_ih, b_hh)))
