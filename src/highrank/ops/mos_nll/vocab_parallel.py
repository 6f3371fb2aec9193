"""The loss of a mixture whose vocabulary is divided among processes, for embeddings that are too large for one GPU.

Every rank has all tokens, and the rows of W and b of its own words: words first ... first + len(weight) - 1.

    lse_k = log sum_ranks exp(lse_k of the rank's words)          nll = -logsumexp_k(log pi_k + z_ky - lse_k)

Only lse and the target's logit z_y, (N, K) each, are exchanged in the forward pass, and the gradient of h in the
backward pass. Each rank obtains the whole gradient of h and log pi, and that of its own rows of W and b, which no other
rank needs. (Shoeybi et al. 2019, "Megatron-LM", divides the cross-entropy of one softmax in this way.)
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from highrank.ops.mos_nll import mos_nll


def vocab_parallel_mos_nll(
    h: Tensor,  # (N, K, D), equal on all ranks, as are log_pi and targets
    log_pi: Tensor,  # (N, K)
    weight: Tensor,  # (V of this rank, D)
    bias: Tensor | None,  # (V of this rank,)
    targets: Tensor,  # (N,) word ids in the whole vocabulary
    first: int,  # id of this rank's first word
) -> Tensor:
    """Return the negative log-likelihood of each token, (N,), equal on all ranks."""
    n, k, d = h.shape
    h = _SumGradients.apply(h)
    # Where the target is another rank's, the gradients of z and of the loss of `words` cancel: sum them in float32.
    sum_dtype = torch.promote_types(weight.dtype, torch.float32)
    weight = weight.to(sum_dtype)
    bias = None if bias is None else bias.to(sum_dtype)
    mine = (targets >= first) & (targets < first + len(weight))
    # Where the target is another rank's, any word does: take different ones, whose gradients add to different rows.
    words = (targets - first) % len(weight)
    z = (h * weight[words, None]).sum(dim=-1)  # (N, K) logits of `words`
    if bias is not None:
        z = z + bias[words, None]
    # Each context vector alone is a mixture of one softmax, whose loss is lse - z.
    nll = mos_nll(h.view(n * k, 1, d), h.new_zeros(n * k, 1), weight, bias, words.repeat_interleave(k))
    lse = nll.view(n, k) + z  # over this rank's words
    top = lse.detach().clone()
    dist.all_reduce(top, dist.ReduceOp.MAX)
    lse = top + _Sum.apply((lse - top).exp()).log()  # over all words
    z = _Sum.apply(torch.where(mine[:, None], z, 0.0))  # the target's logit
    return -torch.logsumexp(log_pi + z - lse, dim=-1)


class _Sum(torch.autograd.Function):
    """Sum over ranks. All of them compute the same loss from the sum, so its gradient needs no exchange."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


class _SumGradients(torch.autograd.Function):
    """The identity, for a tensor that all ranks share and that each uses for its own words: gradients are summed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        grad = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(grad)
        return grad
