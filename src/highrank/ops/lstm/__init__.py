"""One LSTM layer over a sequence, with weights passed in, so that a caller may mask them anew at every call.

    i, f, g, o = W_ih x_t + b_ih + W_hh h_(t-1) + b_hh;   c_t = s(f) c_(t-1) + s(i) tanh(g);   h_t = s(o) tanh(c_t)

Shapes: T time steps, B batch, I inputs, H hidden units; gates stacked in torch's order (input, forget, cell, output).
"""

import warnings

import torch
from torch import Tensor

State = tuple[Tensor, Tensor]  # h and c, (B, H) each


def lstm(x: Tensor, state: State, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> tuple[Tensor, State]:
    """(T, B, I), two (B, H), (4H, I), (4H, H), (4H,), (4H,) -> (T, B, H) and the last state."""
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
