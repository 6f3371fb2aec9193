"""The Softmax head, whose log-probability matrix has rank at most D + 2 (section 2.1: the bottleneck).

    p(x | c) = softmax(g W^T + b)_x

Shapes: g (..., D), targets (...), V words.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from highrank.heads.output_embedding import in_weight_dtype, match_targets, output_bias, output_embedding
from highrank.ops.mos_nll import Impl, mos_nll


class SoftmaxHead(nn.Module):
    """The hidden state is the context vector itself, so the embedding size is `in_features`.

    >>> head = SoftmaxHead(in_features=400, vocab_size=10_000)
    >>> head.nll(torch.randn(70, 12, 400), torch.randint(10_000, (70, 12))).shape
    torch.Size([70, 12])
    """

    def __init__(
        self,
        in_features: int,
        vocab_size: int,
        *,
        bias: bool = True,
        weight: nn.Parameter | None = None,
        impl: Impl = "auto",
        slab_bytes: int | None = None,
    ) -> None:
        super().__init__()
        self.in_features, self.vocab_size = in_features, vocab_size
        self.impl, self.slab_bytes = impl, slab_bytes  # how `mos_nll` computes the loss, and within which memory
        self.weight = output_embedding(vocab_size, in_features, weight)
        self.bias = output_bias(vocab_size, bias)

    def nll(self, g: Tensor, targets: Tensor, *, slab_bytes: int | None = None) -> Tensor:
        """Negative log-likelihood of each target, in float32, of targets' shape.

        `slab_bytes`, if given, replaces the head's.
        """
        match_targets(g, targets, self.in_features)
        h = g.reshape(-1, 1, self.in_features)
        log_pi = h.new_zeros(h.shape[:2], dtype=torch.promote_types(h.dtype, torch.float32))
        y = targets.reshape(-1)
        memory = self.slab_bytes if slab_bytes is None else slab_bytes
        nll = mos_nll(h, log_pi, self.weight, self.bias, y, impl=self.impl, slab_bytes=memory)
        return nll.view(targets.shape)

    def log_prob(self, g: Tensor) -> Tensor:
        """Log-probabilities of the whole vocabulary, (..., V)."""
        logits = F.linear(in_weight_dtype(g, self.weight), self.weight, self.bias)
        return torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), dim=-1)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, vocab_size={self.vocab_size}, bias={self.bias is not None}"
