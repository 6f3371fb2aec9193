"""The update of averaged SGD with weight decay, in place. Its scalars are 0-dim tensors on the device.

    theta <- keep theta - rate grad          average <- average + share (theta - average)

There may be a second list of averages (`short`) with a share of its own. If `apply` is false, nothing changes, even if
a gradient holds NaN. Gradients may be overwritten.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from highrank.ops import has_kernels


def averaged_sgd_(
    parameters: Sequence[Tensor],
    grads: Sequence[Tensor],
    averages: Sequence[Tensor] | None,
    keep: Tensor,
    rate: Tensor,
    share: Tensor,
    apply: Tensor,  # bool
    short: Sequence[Tensor] | None = None,  # second averages
    short_share: Tensor | None = None,
) -> None:
    """Update every parameter, and its averages if given."""
    supported = all(p.dtype == torch.float32 and p.is_contiguous() for p in parameters)
    if parameters[0].is_cuda and supported and has_kernels(parameters[0].device):
        from highrank.ops.averaged_sgd import kernel  # lazily: importing Triton is slow, and it may be missing

        kernel.averaged_sgd_(parameters, grads, averages, keep, rate, share, apply, short, short_share)
        return
    reference_(parameters, grads, averages, keep, rate, share, apply, short, short_share)


def reference_(
    parameters: Sequence[Tensor],
    grads: Sequence[Tensor],
    averages: Sequence[Tensor] | None,
    keep: Tensor,
    rate: Tensor,
    share: Tensor,
    apply: Tensor,
    short: Sequence[Tensor] | None = None,
    short_share: Tensor | None = None,
) -> None:
    """Compute the definition in plain torch."""
    for i, (p, grad) in enumerate(zip(parameters, grads, strict=True)):
        change = grad.mul_(rate.to(p.dtype)).masked_fill_(~apply, 0.0)  # NaN * 0 is NaN, so fill instead
        p.mul_(torch.where(apply, keep, 1.0).to(p.dtype)).sub_(change)
        if averages is not None:
            averages[i].add_((p - averages[i]) * torch.where(apply, share, 0.0).to(p.dtype))
        if short is not None and short_share is not None:
            short[i].add_((p - short[i]) * torch.where(apply, short_share, 0.0).to(p.dtype))
