"""The update of averaged SGD with weight decay, in place, from 0-dim tensors on the device.

    theta <- keep theta - rate grad          average <- average + share (theta - average)

where `apply` is false, nothing changes, even if the gradient holds NaN. `grad` may be overwritten.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def averaged_sgd_(
    parameters: Sequence[Tensor],
    grads: Sequence[Tensor],
    averages: Sequence[Tensor] | None,
    keep: Tensor,
    rate: Tensor,
    share: Tensor,
    apply: Tensor,  # bool
) -> None:
    """Update every parameter, and its average where there are averages."""
    if parameters[0].is_cuda and all(p.dtype == torch.float32 and p.is_contiguous() for p in parameters):
        from highrank.ops import has_kernels

        if has_kernels(parameters[0].device):
            from highrank.ops.averaged_sgd import kernel

            kernel.averaged_sgd_(parameters, grads, averages, keep, rate, share, apply)
            return
    reference_(parameters, grads, averages, keep, rate, share, apply)


def reference_(
    parameters: Sequence[Tensor],
    grads: Sequence[Tensor],
    averages: Sequence[Tensor] | None,
    keep: Tensor,
    rate: Tensor,
    share: Tensor,
    apply: Tensor,
) -> None:
    """The definition, in plain torch."""
    for i, (p, grad) in enumerate(zip(parameters, grads, strict=True)):
        change = grad.mul_(rate.to(p.dtype)).masked_fill_(~apply, 0.0)  # NaN times zero would still be NaN
        p.mul_(torch.where(apply, keep, 1.0).to(p.dtype)).sub_(change)
        if averages is not None:
            averages[i].add_((p - averages[i]) * torch.where(apply, share, 0.0).to(p.dtype))
