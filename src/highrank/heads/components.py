"""Mixture weights and context vectors, the parameterisation that MoC and MoS share (sections 2.4 and 2.5).

    pi_k = softmax_k(w_pi,k . g)        h_k = tanh(W_h,k g + b_h,k)

Shapes: g (..., in_features), pi (..., K), h (..., K, D).
"""

import torch
from torch import Tensor, nn

from highrank.heads.output_embedding import (
    check_dropouts,
    check_sizes,
    in_weight_dtype,
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

    In training, `dropout` acts on h with one mask for all time steps: g of three or more dimensions is time first.
    """

    def __init__(self, in_features: int, embed_dim: int, n_components: int, dropout: float) -> None:
        super().__init__()
        check_sizes(in_features=in_features, embed_dim=embed_dim, n_components=n_components)
        check_dropouts(dropout=dropout)
        self.embed_dim, self.n_components, self.dropout = embed_dim, n_components, dropout
        self.prior = nn.Linear(in_features, n_components, bias=False)
        self.latent = AlignedLinear(in_features, n_components * embed_dim)

    def forward(self, g: Tensor) -> tuple[Tensor, Tensor]:
        g = in_weight_dtype(g, self.latent.weight)
        log_pi = torch.log_softmax(self.prior(g).to(torch.promote_types(g.dtype, torch.float32)), dim=-1)
        h = torch.tanh(self.latent(g))
        if self.training:
            h = variational_dropout(h, self.dropout)
        return log_pi, h.unflatten(-1, (self.n_components, self.embed_dim))


class MixtureHead(nn.Module):
    """What MoC and MoS have in common: all of their parameters. They differ in where they take the mixture."""

    def __init__(
        self,
        in_features: int,
        embed_dim: int,
        vocab_size: int,
        n_components: int,
        *,
        dropout: float = 0.0,
        bias: bool = True,
        weight: nn.Parameter | None = None,
        impl: Impl = "auto",
        slab_bytes: int | None = None,
    ) -> None:
        super().__init__()
        check_sizes(vocab_size=vocab_size)
        self.in_features, self.embed_dim, self.vocab_size = in_features, embed_dim, vocab_size
        self.impl, self.slab_bytes = impl, slab_bytes  # how `mos_nll` computes the loss, and within which memory
        self.mixture = MixtureComponents(in_features, embed_dim, n_components, dropout)
        self.weight = output_embedding(vocab_size, embed_dim, weight)
        self.bias = output_bias(vocab_size, bias)

    def components(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """Mixture weights pi (..., K) and context vectors h (..., K, D)."""
        log_pi, h = self.mixture(g)
        return log_pi.exp(), h

    def extra_repr(self) -> str:
        return f"vocab_size={self.vocab_size}, bias={self.bias is not None}"
