"""Activation regularisation (AR) and its temporal kind (TAR), as in AWD-LSTM (Merity et al. 2017).

    penalty = alpha mean(g^2) + beta mean((raw_t - raw_(t-1))^2)

Shapes: g and raw (T, B, H): the last layer's output after and before dropout.
"""

import torch
from torch import Tensor

from highrank.ops import has_kernels


def activation_penalty(g: Tensor, raw: Tensor, alpha: float, beta: float) -> Tensor:
    """0-dim, in float32 at least; differentiable in both. Sums run in float32 for half-precision inputs."""
    if not alpha and not beta:
        return g.new_zeros((), dtype=torch.promote_types(g.dtype, torch.float32))
    alike = g.shape == raw.shape and g.dtype == raw.dtype != torch.float64
    if g.is_cuda and alike and len(g) > 1 and has_kernels(g.device):
        from highrank.ops.activation_penalty import kernel  # Triton takes a while to import, and may not be there

        return kernel.activation_penalty(g, raw, alpha, beta)
    return reference(g, raw, alpha, beta)


def reference(g: Tensor, raw: Tensor, alpha: float, beta: float) -> Tensor:
    """The definition, in plain torch; a single time step has no difference to penalise."""
    wide = torch.promote_types(g.dtype, torch.float32)
    g, raw = g.to(wide), raw.to(wide)
    penalty = alpha * g.pow(2).mean()
    return penalty + beta * raw.diff(dim=0).pow(2).mean() if len(raw) > 1 else penalty
