"""The Mixture-of-Softmaxes head (section 2.4): the mixture is taken after the softmax, which frees the rank.

    p(x | c) = sum_k pi_k softmax(h_k W^T + b)_x

Shapes: g (..., in_features), pi (..., K), h (..., K, D), targets (...), V words.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from highrank.heads.components import MixtureHead


class MoSHead(MixtureHead):
    """K softmaxes over one word embedding, weighed by a prior; log p is not low-rank in D any more.

    >>> head = MoSHead(in_features=620, embed_dim=280, vocab_size=10_000, n_components=15, dropout=0.29)
    >>> pi, h = head.components(torch.randn(5, 620))
    >>> pi.shape, h.shape
    (torch.Size([5, 15]), torch.Size([5, 15, 280]))
    """

    def softmaxes(self, g: Tensor) -> tuple[Tensor, Tensor]:
        log_pi, h = self.mixture(g)
        return log_pi, h

    def log_prob(self, g: Tensor) -> Tensor:
        """Log-probabilities of the whole vocabulary, (..., V), one component at a time."""
        log_pi, h = self.softmaxes(g)
        total: Tensor | None = None
        for k in range(self.mixture.n_components):
            logits = F.linear(h[..., k, :], self.weight, self.bias)  # (..., V)
            log_p = torch.log_softmax(logits.to(log_pi.dtype), dim=-1) + log_pi[..., k, None]
            total = log_p if total is None else torch.logaddexp(total, log_p)
        assert total is not None  # n_components >= 1
        return total
