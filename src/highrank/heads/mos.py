"""The Mixture-of-Softmaxes head (section 2.4): the mixture is taken after the softmax, which frees the rank.

    p(x | c) = sum_k pi_k softmax(h_k W^T + b)_x

Shapes: g (..., in_features), pi (..., K), h (..., K, D), targets (...), V words.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from highrank.heads.components import MixtureHead
from highrank.heads.output_embedding import match_targets
from highrank.ops.mos_nll import mos_nll


class MoSHead(MixtureHead):
    """K softmaxes over one word embedding, weighed by a prior; log p is not low-rank in D any more.

    >>> head = MoSHead(in_features=620, embed_dim=280, vocab_size=10_000, n_components=15, dropout=0.29)
    >>> pi, h = head.components(torch.randn(5, 620))
    >>> pi.shape, h.shape
    (torch.Size([5, 15]), torch.Size([5, 15, 280]))
    """

    def nll(self, g: Tensor, targets: Tensor, *, slab_bytes: int | None = None) -> Tensor:
        """Negative log-likelihood of each target, in float32, of targets' shape; never builds (N, K, V).

        `slab_bytes`, if given, replaces the head's.
        """
        match_targets(g, targets, self.in_features)
        log_pi, h = self.mixture(g)
        nll = mos_nll(
            h.flatten(0, -3) if h.dim() > 2 else h[None],
            log_pi.reshape(-1, log_pi.shape[-1]),
            self.weight,
            self.bias,
            targets.reshape(-1),
            impl=self.impl,
            slab_bytes=self.slab_bytes if slab_bytes is None else slab_bytes,
        )
        return nll.view(targets.shape)

    def log_prob(self, g: Tensor) -> Tensor:
        """Log-probabilities of the whole vocabulary, (..., V), one component at a time."""
        log_pi, h = self.mixture(g)
        total: Tensor | None = None
        for k in range(self.mixture.n_components):
            logits = F.linear(h[..., k, :], self.weight, self.bias)  # (..., V)
            log_p = torch.log_softmax(logits.to(log_pi.dtype), dim=-1) + log_pi[..., k, None]
            total = log_p if total is None else torch.logaddexp(total, log_p)
        assert total is not None  # n_components >= 1
        return total
