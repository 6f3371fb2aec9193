"""The definition of `mos_nll` in plain torch, with which every other implementation is compared.

    nll_n = -logsumexp_k( log pi_nk + log_softmax(h_nk W^T + b)[y_n] )

It builds the (N, K, V) tensor of logits. The paper's code computes log(p + 1e-8) from the mixed probabilities;
logsumexp needs no such floor.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from highrank.ops.mos_nll.sampling import RowSample


def mos_nll(
    h: Tensor,
    log_pi: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    sample: RowSample | None = None,
    margins: Tensor | None = None,
) -> Tensor:
    """Return the loss of each token: (N, K, D), (N, K), (V, D), (V,) or None, (N,) -> (N,).

    With a `sample`, the gradients are unbiased estimates. `margins`, (N, K), are subtracted from the logits of the
    targets, as constants.
    """
    logits = _at_least_float32(F.linear(h, weight, bias))  # (N, K, V)
    index = targets[:, None, None].expand(-1, h.shape[1], 1)  # (N, K, 1)
    if margins is not None:
        logits = logits.scatter_add(-1, index, -margins.detach().to(logits.dtype).unsqueeze(-1))
    log_p = torch.log_softmax(logits, dim=-1)  # (N, K, V)
    log_p_target = log_p.gather(-1, index).squeeze(-1)  # (N, K)
    joint = _at_least_float32(log_pi) + log_p_target  # (N, K)
    nll = -torch.logsumexp(joint, dim=-1)  # (N,)
    if sample is not None and log_p_target.requires_grad:
        r = torch.exp(joint + nll[:, None]).detach()  # (N, K) responsibilities, the gradient of -nll
        scale = torch.where(r > 0, sample.weights(r) / r, 0.0)
        log_p_target.register_hook(lambda gradient: gradient * scale)
    return nll


def _at_least_float32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
