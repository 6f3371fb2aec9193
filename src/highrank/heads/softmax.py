"""The Softmax head (section 2.1 of the paper), which has the bottleneck.

    p(x | c) = softmax(g W^T + b)_x
    log p    = g W^T + b - logsumexp(g W^T + b)

Stack log p for all contexts c: g W^T has rank D at most, the bias adds one and the normaliser another. So the matrix of
log-probabilities has rank at most D + 2, whatever the rank of the language.

Shapes: g (..., D), D embedding size, V vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from highrank.heads.head import Head, cast_for_product, tied_or_new_embedding
from highrank.ops.dropout import variational_dropout
from highrank.ops.linear import AlignedLinear
from highrank.ops.mos_nll import Impl
from highrank.ops.parameters import check_dropouts, check_sizes


class SoftmaxHead(Head):
    """A softmax over the products of the hidden state with the word embeddings.

    The hidden state is the context vector h, so D is `in_features`. With another `embed_dim`, h is a linear projection
    of it. The other options are those of `MoSHead`, so that one head can be exchanged for another; `n_components`,
    `shared_mask`, `scale` and `sample_below` only matter to mixtures.

    >>> head = SoftmaxHead(in_features=400, vocab_size=10_000)
    >>> head.nll(torch.randn(70, 12, 400), torch.randint(10_000, (70, 12))).shape
    torch.Size([70, 12])
    """

    n_components = 1

    def __init__(
        self,
        in_features: int,
        vocab_size: int,
        *,
        embed_dim: int | None = None,
        n_components: int = 1,
        dropout: float = 0.0,
        shared_mask: bool = False,
        batch_first: bool = False,
        bias: bool = True,
        weight: nn.Parameter | None = None,
        scale: float | None = None,
        impl: Impl = "auto",
        slab_bytes: int | None = None,
        sample_below: float | None = None,
    ) -> None:
        super().__init__()
        embed_dim = in_features if embed_dim is None else embed_dim
        check_sizes(in_features=in_features, embed_dim=embed_dim, vocab_size=vocab_size, n_components=n_components)
        check_dropouts(dropout=dropout)
        self.in_features = in_features
        self.embed_dim = embed_dim
        self.vocab_size = vocab_size
        self.dropout = dropout
        self.batch_first = batch_first
        self.impl = impl
        self.slab_bytes = slab_bytes
        self.latent = None if embed_dim == in_features else AlignedLinear(in_features, embed_dim)
        self.weight = tied_or_new_embedding(weight, vocab_size, embed_dim)
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None

    def init_mixture(self) -> None:
        """Draw `latent`, if there is one, like `nn.Linear`; `MoSHead.init_mixture` says when to call it."""
        if self.latent is not None:
            self.latent.reset_parameters()

    def context(self, g: Tensor) -> Tensor:
        """Return the context vector h (..., D)."""
        h = cast_for_product(g, self.weight if self.latent is None else self.latent.weight)
        if self.latent is not None:
            h = self.latent(h)
        return variational_dropout(h, self.dropout, time_dim=1 if self.batch_first else 0) if self.training else h

    def softmaxes(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """Return log pi = log 1 = 0 (..., 1) and the context vector h (..., 1, D)."""
        h = self.context(g).unsqueeze(-2)
        return h.new_zeros(h.shape[:-1], dtype=torch.promote_types(h.dtype, torch.float32)), h

    def log_prob(self, g: Tensor) -> Tensor:
        """Return the log-probabilities of the whole vocabulary, (..., V)."""
        logits = F.linear(self.context(g), self.weight, self.bias)  # (..., V)
        return torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), dim=-1)

    def extra_repr(self) -> str:
        sizes = f"in_features={self.in_features}, embed_dim={self.embed_dim}, vocab_size={self.vocab_size}"
        return f"{sizes}, dropout={self.dropout}, bias={self.bias is not None}"
