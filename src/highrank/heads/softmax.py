"""The Softmax head, whose log-probability matrix has rank at most D + 2 (section 2.1: the bottleneck).

    p(x | c) = softmax(g W^T + b)_x

Shapes: g (..., D), targets (...), V words.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from highrank.heads.head import Head, one_softmax
from highrank.heads.output_embedding import check_sizes, for_product, output_bias, output_embedding
from highrank.ops.mos_nll import Impl


class SoftmaxHead(Head):
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
        check_sizes(in_features=in_features, vocab_size=vocab_size)
        self.in_features, self.vocab_size = in_features, vocab_size
        self.impl, self.slab_bytes = impl, slab_bytes
        self.weight = output_embedding(vocab_size, in_features, weight)
        self.bias = output_bias(vocab_size, bias)

    def softmaxes(self, g: Tensor) -> tuple[Tensor, Tensor]:
        return one_softmax(for_product(g, self.weight))

    def log_prob(self, g: Tensor) -> Tensor:
        """Log-probabilities of the whole vocabulary, (..., V)."""
        logits = F.linear(for_product(g, self.weight), self.weight, self.bias)
        return torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), dim=-1)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, vocab_size={self.vocab_size}, bias={self.bias is not None}"
