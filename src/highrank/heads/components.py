"""Mixture weights and context vectors, the parameterisation that MoC and MoS share (sections 2.4 and 2.5).

    pi_k = softmax_k(w_pi,k . g)        h_k = tanh(W_h,k g + b_h,k)

Shapes: g (..., in_features), pi (..., K), h (..., K, D).
"""

import torch
from torch import Tensor, nn

from highrank.heads.head import Head
from highrank.heads.output_embedding import (
    check_dropouts,
    check_sizes,
    for_product,
    output_bias,
    output_embedding,
)
from highrank.ops.dropout import variational_dropout
from highrank.ops.linear import aligned_linear
from highrank.ops.mos_nll import Impl


class AlignedLinear(nn.Linear):
    """`nn.Linear` at full speed for sizes that are not round."""

    def forward(self, x: Tensor) -> Tensor:
        return aligned_linear(x, self.weight, self.bias)


class MixtureComponents(nn.Module):
    """g -> (log pi, h). The prior has no bias and the latent projection has one, as in the released code.

    In training, `dropout` acts on h with one mask for all time steps: those are the first dimension of a g of three or
    more, or the second with `batch_first`.
    """

    def __init__(
        self, in_features: int, embed_dim: int, n_components: int, dropout: float, batch_first: bool = False
    ) -> None:
        super().__init__()
        check_sizes(in_features=in_features, embed_dim=embed_dim, n_components=n_components)
        check_dropouts(dropout=dropout)
        self.embed_dim, self.n_components = embed_dim, n_components
        self.dropout, self.batch_first = dropout, batch_first
        self.prior = nn.Linear(in_features, n_components, bias=False)
        self.latent = AlignedLinear(in_features, n_components * embed_dim)

    def forward(self, g: Tensor) -> tuple[Tensor, Tensor]:
        g = for_product(g, self.latent.weight)
        log_pi = torch.log_softmax(self.prior(g).to(torch.promote_types(g.dtype, torch.float32)), dim=-1)
        h = torch.tanh(self.latent(g))
        if self.training:
            h = variational_dropout(h, self.dropout, time_dim=int(self.batch_first))
        return log_pi, h.unflatten(-1, (self.n_components, self.embed_dim))


class MixtureHead(Head):
    """What MoC and MoS have in common: all of their parameters. They differ in where they take the mixture.

    `dropout` drops the same parts of h at all time steps: g is (time, batch, in_features), or with `batch_first`
    (batch, time, in_features).
    """

    def __init__(
        self,
        in_features: int,
        embed_dim: int,
        vocab_size: int,
        n_components: int,
        *,
        dropout: float = 0.0,
        batch_first: bool = False,
        bias: bool = True,
        weight: nn.Parameter | None = None,
        impl: Impl = "auto",
        slab_bytes: int | None = None,
    ) -> None:
        super().__init__()
        check_sizes(vocab_size=vocab_size)
        self.in_features, self.embed_dim, self.vocab_size = in_features, embed_dim, vocab_size
        self.impl, self.slab_bytes = impl, slab_bytes
        self.mixture = MixtureComponents(in_features, embed_dim, n_components, dropout, batch_first)
        self.weight = output_embedding(vocab_size, embed_dim, weight)
        self.bias = output_bias(vocab_size, bias)

    def components(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """Mixture weights pi (..., K) and context vectors h (..., K, D)."""
        log_pi, h = self.mixture(g)
        return log_pi.exp(), h

    def extra_repr(self) -> str:
        sizes = f"in_features={self.in_features}, embed_dim={self.embed_dim}, vocab_size={self.vocab_size}"
        mixture = f"n_components={self.mixture.n_components}, dropout={self.mixture.dropout}"
        return f"{sizes}, {mixture}, bias={self.bias is not None}"
