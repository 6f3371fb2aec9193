"""Negative log-likelihood of a mixture of softmaxes (section 2.4 of the paper), without its (N, K, V) tensor.

    p(y | c) = sum_k pi_k softmax(h_k W^T + b)_y          nll = -log p(y | c)

Shapes: N tokens, K components, D embedding size, V vocabulary. docs/loss.md derives the gradient.
"""

from typing import Any, get_args

import torch
from torch import Tensor

from highrank.ops import autocast_dtype, without_autocast
from highrank.ops.mos_nll import chunked, custom_op, reference
from highrank.ops.mos_nll.adversarial import adversarial_margins
from highrank.ops.mos_nll.custom_op import Impl, uses_kernels
from highrank.ops.mos_nll.sampling import RowSample

__all__ = ["Impl", "adversarial_margins", "mos_nll"]


def mos_nll(
    h: Tensor,  # (N, K, D) context vectors
    log_pi: Tensor,  # (N, K) log mixture weights
    weight: Tensor,  # (V, D) word embeddings
    bias: Tensor | None,  # (V,)
    targets: Tensor,  # (N,) word ids
    *,
    impl: Impl = "auto",
    slab_bytes: int | None = None,
    sample_below: float | None = None,
    margins: Tensor | None = None,  # (N, K)
) -> Tensor:
    """Return the negative log-likelihood of each token, (N,), in float32 (float64 for float64 inputs).

    `impl="auto"` chooses the Triton kernels for half precision on an NVIDIA GPU, and slabs everywhere else.
    `slab_bytes` bounds the logits held at any moment; each implementation has its own default. Under autocast the
    matrix products run in the autocast dtype; sums, logarithms and the gradients of `weight` and `bias` stay float32.

    `sample_below` makes the backward pass faster and its gradients of `h`, `weight` and `bias` random, but unbiased: of
    the rows (token, component) whose responsibility r is below it, only a share r / `sample_below` is visited. The loss
    and the gradient of `log_pi` stay exact. Values of 1/32 to 1/8 are useful; None computes exact gradients.

    `margins` are subtracted from the logits of the targets, as constants without a gradient: `adversarial_margins`
    computes those of adversarial softmax.

    There is no `ignore_index` here (heads have one): give padding any word, and weigh its loss with zero.
    Out-of-range targets raise a RuntimeError on the CPU; the Triton kernels return NaN for them.

    >>> h, log_pi = torch.randn(7, 3, 5), torch.randn(7, 3).log_softmax(-1)
    >>> mos_nll(h, log_pi, torch.randn(11, 5), None, torch.randint(11, (7,))).shape
    torch.Size([7])
    """
    if impl not in get_args(Impl):
        raise ValueError(f"unknown impl {impl!r}: choose one of {', '.join(get_args(Impl))}")
    if slab_bytes is not None and slab_bytes < 1:
        raise ValueError(f"slab_bytes must be at least 1, got {slab_bytes}")
    if sample_below is not None and not 0 < sample_below <= 1:
        raise ValueError(f"sample_below must be above 0 and at most 1, got {sample_below}")
    _check_shapes(h, log_pi, weight, bias, targets, margins)
    margins = None if margins is None else margins.detach()
    compute_dtype = autocast_dtype(h)
    sample = None
    if torch.is_grad_enabled():
        if sample_below is not None and h.shape[1] > 1:  # the responsibility of a single component is 1
            sample = RowSample.draw(sample_below, h)
    else:
        # Under no_grad, ctx.needs_input_grad is still True; detach to skip the gradients.
        h = h.detach()
        log_pi = log_pi.detach()
        weight = weight.detach()
        bias = None if bias is None else bias.detach()
    with without_autocast(h.device.type):
        if impl == "reference":
            cast_bias = None if bias is None else bias.to(compute_dtype)
            inputs = h.to(compute_dtype), log_pi, weight.to(compute_dtype), cast_bias, targets
            return reference.mos_nll(*inputs, sample, margins)
        inputs = h, log_pi, weight, bias, targets
        if torch.compiler.is_compiling():
            return custom_op.mos_nll(*inputs, impl, compute_dtype, slab_bytes, sample, margins)
        options: Any = {"compute_dtype": compute_dtype, "slab_bytes": slab_bytes, "sample": sample, "margins": margins}
        if uses_kernels(impl, h.device, compute_dtype):
            from highrank.ops.mos_nll import kernel  # lazily: importing Triton is slow, and it may be missing

            return kernel.mos_nll(*inputs, **options)
        return chunked.mos_nll(*inputs, **options)


def _check_shapes(
    h: Tensor, log_pi: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, margins: Tensor | None
) -> None:
    """Raise a ValueError that names the tensor of the wrong shape, before a matrix product fails on it."""
    if h.dim() != 3:
        raise ValueError(f"h must be (N, K, D), got shape {tuple(h.shape)}")
    n, k, d = h.shape
    if log_pi.shape != (n, k):
        raise ValueError(f"log_pi must be (N, K) = {(n, k)}, got {tuple(log_pi.shape)}")
    if weight.dim() != 2 or weight.shape[1] != d:
        raise ValueError(f"weight must be (V, D) with D = {d}, got {tuple(weight.shape)}")
    if bias is not None and bias.shape != (weight.shape[0],):
        raise ValueError(f"bias must be (V,) = {(weight.shape[0],)}, got {tuple(bias.shape)}")
    if targets.shape != (n,):
        raise ValueError(f"targets must be (N,) = {(n,)}, got {tuple(targets.shape)}")
    if margins is not None and margins.shape != (n, k):
        raise ValueError(f"margins must be (N, K) = {(n, k)}, got {tuple(margins.shape)}")
