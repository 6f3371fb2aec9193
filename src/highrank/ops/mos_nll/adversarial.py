"""Adversarial softmax (Wang et al. 2019, "Improving Neural Language Modeling via Adversarial Training").

An adversary moves the embedding w_y of the target by at most eps |w_y|, in the direction that hurts row (n, k) most:
against h_nk. The target's logit falls by eps |w_y| |h_nk|. Only rows whose logit h_nk . w_y is positive are attacked.
The training loss is that of `mos_nll` with these margins.
"""

import torch
from torch import Tensor


@torch.no_grad()  # the attack is a constant of the loss
def adversarial_margins(h: Tensor, weight: Tensor, targets: Tensor, eps: float) -> Tensor:
    """Return eps |w_y| |h_nk| where h_nk . w_y is positive, else 0: (N, K, D), (V, D), (N,) -> (N, K)."""
    dtype = torch.promote_types(h.dtype, torch.float32)
    w = weight[targets].to(h.dtype)  # (N, D)
    cosine_sign = (h @ w.unsqueeze(-1)).squeeze(-1)  # (N, K)
    norms = torch.linalg.vector_norm(h, dim=-1, dtype=dtype) * torch.linalg.vector_norm(w, dim=-1, dtype=dtype)[:, None]
    return torch.where(cosine_sign > 0, eps * norms, 0.0)
