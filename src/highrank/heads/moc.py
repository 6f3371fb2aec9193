"""The Mixture-of-Contexts head (section 2.5): a mixture taken before the softmax, and so still of rank at most D + 2.

    p(x | c) = softmax( (sum_k pi_k h_k) W^T + b )_x

Shapes: g (..., in_features), pi (..., K), h (..., K, D), targets (...), V words.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from highrank.heads.components import MixtureHead
from highrank.heads.output_embedding import match_targets
from highrank.ops.mos_nll import mos_nll


class MoCHead(MixtureHead):
    """The same parameters as `MoSHead`, mixed in feature space: the paper's low-rank control.

    >>> head = MoCHead(in_features=620, embed_dim=280, vocab_size=10_000, n_components=15, dropout=0.29)
    >>> head.log_prob(torch.randn(5, 620)).shape
    torch.Size([5, 10000])
    """

    def context(self, g: Tensor) -> Tensor:
        """The one context vector sum_k pi_k h_k, (..., D)."""
        pi, h = self.components(g)
        return (pi.to(h.dtype).unsqueeze(-2) @ h).squeeze(-2)

    def nll(self, g: Tensor, targets: Tensor, *, slab_bytes: int | None = None) -> Tensor:
        """Negative log-likelihood of each target, in float32, of targets' shape.

        `slab_bytes`, if given, replaces the head's.
        """
        match_targets(g, targets, self.in_features)
        h = self.context(g).reshape(-1, 1, self.embed_dim)
        log_pi = h.new_zeros(h.shape[:2], dtype=torch.promote_types(h.dtype, torch.float32))
        y = targets.reshape(-1)
        memory = self.slab_bytes if slab_bytes is None else slab_bytes
        nll = mos_nll(h, log_pi, self.weight, self.bias, y, impl=self.impl, slab_bytes=memory)
        return nll.view(targets.shape)

    def log_prob(self, g: Tensor) -> Tensor:
        """Log-probabilities of the whole vocabulary, (..., V)."""
        logits = F.linear(self.context(g), self.weight, self.bias)
        return torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), dim=-1)
