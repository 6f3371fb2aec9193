"""The head of DOC, direct output connection (Takase et al. 2018): a mixture of softmaxes from several layers.

    g = [g_1, g_2, ...]                               hidden states: the last layer's, then those of layers below it
    pi = softmax(W_pi g_1)                            mixture weights, from the last layer alone
    h_k = tanh(W_h,k g_l + b_h,k)                     context vectors; component k belongs to layer l
    p(x | c) = sum_k pi_k softmax(h_k W^T + b)_x

Shapes: g (..., in_features), K components of all layers together, D embedding size.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from highrank.heads.head import cast_for_product
from highrank.heads.mos import MoSHead
from highrank.ops.linear import AlignedLinear
from highrank.ops.parameters import check_sizes


class DOCHead(MoSHead):
    """A `MoSHead` whose components belong to several layers; `options` are those of `MoSHead`.

    `layer_sizes` and `layer_components` start with the last layer. g holds the states of all layers side by side.

    >>> head = DOCHead((620, 960), embed_dim=280, vocab_size=10_000, layer_components=(15, 5))
    >>> pi, h = head.components(torch.randn(5, 620 + 960))
    >>> pi.shape, h.shape
    (torch.Size([5, 20]), torch.Size([5, 20, 280]))
    """

    def __init__(
        self,
        layer_sizes: Sequence[int],
        embed_dim: int,
        vocab_size: int,
        layer_components: Sequence[int],
        **options: Any,
    ) -> None:
        super().__init__(layer_sizes[0], embed_dim, vocab_size, layer_components[0], **options)
        lower = list(zip(layer_sizes[1:], layer_components[1:], strict=True))
        for size, components in lower:
            check_sizes(layer_sizes=size, layer_components=components)
        self.layer_sizes = list(layer_sizes)
        self.in_features = sum(layer_sizes)
        self.n_components = sum(layer_components)
        self.prior = nn.Linear(layer_sizes[0], self.n_components, bias=False)
        self.lower = nn.ModuleList(AlignedLinear(size, components * embed_dim) for size, components in lower)

    def init_mixture(self) -> None:
        super().init_mixture()
        for latent in self.lower:
            assert isinstance(latent, AlignedLinear)
            latent.reset_parameters()

    def log_prior(self, g: Tensor) -> Tensor:
        return super().log_prior(self._layers(g)[0])

    def features(self, g: Tensor) -> Tensor:
        last, *lower = self._layers(g)
        parts = [super().features(last)]
        for x, latent in zip(lower, self.lower, strict=True):
            assert isinstance(latent, AlignedLinear)
            parts.append(latent(cast_for_product(x, latent.weight)))
        return torch.cat(parts, dim=-1)

    def _layers(self, g: Tensor) -> Sequence[Tensor]:
        """Return the states of each layer, the last layer's first."""
        if g.shape[-1] != self.in_features:
            raise ValueError(f"g must have in_features = {self.in_features} as its last size, got {tuple(g.shape)}")
        return g.split(self.layer_sizes, dim=-1)
