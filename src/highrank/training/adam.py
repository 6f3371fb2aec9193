"""Adam (Kingma and Ba 2015) as a transformation of gradients, so that averaging works as with SGD.

    m <- b1 m + (1 - b1) grad            v <- b2 v + (1 - b2) grad^2            t <- t + 1
    direction = (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)

The optimiser then subtracts lr times the direction. Like its update, this reads only tensors on the device.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

BETA_1 = 0.9
BETA_2 = 0.999
EPSILON = 1e-8


class Adam:
    """The moments of a list of parameters' gradients."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.m = [torch.zeros_like(p) for p in parameters]
        self.v = [torch.zeros_like(p) for p in parameters]
        self.t = torch.zeros((), dtype=torch.float64, device=parameters[0].device)

    def directions(self, grads: Sequence[Tensor], grad_scale: Tensor, apply: Tensor) -> list[Tensor]:
        """Return the directions for gradients grad_scale * grad. Where `apply` is false, the moments do not change."""
        self.t += apply
        bias_1 = 1 - BETA_1 ** self.t.clamp(min=1)
        bias_2 = 1 - BETA_2 ** self.t.clamp(min=1)
        rate_1 = (1 - BETA_1) * apply
        rate_2 = (1 - BETA_2) * apply
        directions = []
        for grad, m, v in zip(grads, self.m, self.v, strict=True):
            grad = torch.where(apply, grad * grad_scale, 0.0).to(m.dtype)  # NaN * 0 is NaN, so choose instead
            m.lerp_(grad, rate_1.to(m.dtype))
            v.lerp_(grad.square(), rate_2.to(v.dtype))
            directions.append(m / bias_1.to(m.dtype) / ((v / bias_2.to(v.dtype)).sqrt() + EPSILON))
        return directions
