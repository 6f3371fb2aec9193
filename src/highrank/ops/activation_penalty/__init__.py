"""Activation regularisation (AR) and temporal activation regularisation (TAR) of AWD-LSTM (Merity et al. 2017).

    penalty = alpha mean(g^2) + beta mean((raw_t - raw_(t-1))^2)

Shapes: g and raw (T, B, H): the last layer's output after and before dropout.
"""

import torch
from torch import Tensor

from highrank.ops import has_kernels


def activation_penalty(g: Tensor, raw: Tensor, alpha: float, beta: float) -> Tensor:
    """Return the penalty as a 0-dim tensor, in float32 at least, also for half-precision inputs."""
    if not alpha and not beta:
        return g.new_zeros((), dtype=torch.promote_types(g.dtype, torch.float32))
    same_kind = g.shape == raw.shape and g.dtype == raw.dtype != torch.float64
    if g.is_cuda and same_kind and len(g) > 1 and has_kernels(g.device):
        from highrank.ops.activation_penalty import kernel  # lazily: importing Triton is slow, and it may be missing

        return kernel.activation_penalty(g, raw, alpha, beta)
    return reference(g, raw, alpha, beta)


def reference(g: Tensor, raw: Tensor, alpha: float, beta: float) -> Tensor:
    """Compute the definition in plain torch. TAR of a single time step is zero."""
    wide = torch.promote_types(g.dtype, torch.float32)
    penalty = alpha * g.to(wide).pow(2).mean()
    return penalty + beta * raw.to(wide).diff(dim=0).pow(2).mean() if len(raw) > 1 else penalty
