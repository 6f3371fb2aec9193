"""torch's LSTM layer with weights passed in: the definition of `lstm`, and its fast path once sizes are padded.

Shapes: T time steps, B batch, I inputs, H hidden units.
"""

import warnings

import torch
import torch.nn.functional as F
from torch import Tensor

State = tuple[Tensor, Tensor]  # h and c, (B, H) each


def torch_lstm(
    x: Tensor, h: Tensor, c: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> tuple[Tensor, State]:
    """Return the outputs, (T, B, H), and the last state; all tensors have the same dtype."""
    # `train=True` even in evaluation: without dropout inside it changes no value, and cuDNN's backward pass, which
    # dynamic evaluation needs, requires it.
    with warnings.catch_warnings():
        # Masked weights are not one contiguous cuDNN buffer, so torch warns that it copies them at every call.
        warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
        output, h_last, c_last = torch.lstm(
            x, [h[None].contiguous(), c[None].contiguous()], [w_ih, w_hh, b_ih, b_hh], True, 1, 0.0, True, False, False
        )
    return output, (h_last[0], c_last[0])


def short_lstm(
    x: Tensor, h: Tensor, c: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> tuple[Tensor, State]:
    """Compute `torch_lstm` for few time steps.

    On a CPU, `torch.lstm` copies all weights into oneDNN's layout at every call, which takes longer than eight steps.
    """
    outputs = []
    for inputs in F.linear(x, w_ih, b_ih + b_hh):  # (B, 4 H)
        i, f, g, o = torch.addmm(inputs, h, w_hh.t()).chunk(4, dim=-1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        outputs.append(h)
    return torch.stack(outputs), (h, c)
