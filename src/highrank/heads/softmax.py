"""The Softmax head (section 2.1 of the paper), which has the bottleneck.

    p(x | c) = softmax(g W^T + b)_x
    log p    = g W^T + b - logsumexp(g W^T + b)

Stack log p for all contexts c: g W^T has rank D at most, the bias adds one and the normaliser another. So the matrix of
log-probabilities has rank at most D + 2, whatever the rank of the language.

Shapes: g (..., D), targets (...), N tokens in all, D embedding size, V vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from highrank.heads.head import Head, cast_for_product, mask_padding, tied_or_new_embedding
from highrank.ops.mos_nll import Impl, mos_nll
from highrank.ops.parameters import check_sizes


class SoftmaxHead(Head):
    """A linear layer and a softmax. The hidden state is the context vector, so D is `in_features`.

    `weight` ties the output embedding to a (vocab_size, in_features) parameter. `impl` and `slab_bytes` are passed to
    `highrank.ops.mos_nll`.

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
        self.in_features = in_features
        self.vocab_size = vocab_size
        self.impl = impl
        self.slab_bytes = slab_bytes
        self.weight = tied_or_new_embedding(weight, vocab_size, in_features)
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None

    def nll(
        self, g: Tensor, targets: Tensor, *, ignore_index: int | None = None, slab_bytes: int | None = None
    ) -> Tensor:
        """Return -log p of each target, shape (...), without building (N, V); `Head.nll` explains the options."""
        tokens = mask_padding(g, targets, self.vocab_size, ignore_index)
        h = cast_for_product(tokens.g, self.weight).reshape(-1, 1, self.in_features)  # (N, 1, D): a mixture of one
        nll = mos_nll(
            h,
            h.new_zeros(len(h), 1, dtype=torch.promote_types(h.dtype, torch.float32)),  # log pi = log 1
            self.weight,
            self.bias,
            tokens.targets.reshape(-1),
            impl=self.impl,
            slab_bytes=self.slab_bytes if slab_bytes is None else slab_bytes,
        )
        return tokens.zero_padding(nll.view(targets.shape))

    def log_prob(self, g: Tensor) -> Tensor:
        """Return the log-probabilities of the whole vocabulary, (..., V)."""
        logits = F.linear(cast_for_product(g, self.weight), self.weight, self.bias)  # (..., V)
        return torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), dim=-1)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, vocab_size={self.vocab_size}, bias={self.bias is not None}"
