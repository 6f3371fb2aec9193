"""The Mixture-of-Contexts head (section 2.5): a mixture taken before the softmax, and so still of rank at most D + 2.

    p(x | c) = softmax( (sum_k pi_k h_k) W^T + b )_x

Shapes: g (..., in_features), pi (..., K), h (..., K, D), targets (...), V words.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from highrank.heads.components import MixtureHead
from highrank.heads.head import one_softmax


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

    def softmaxes(self, g: Tensor) -> tuple[Tensor, Tensor]:
        return one_softmax(self.context(g))

    def log_prob(self, g: Tensor) -> Tensor:
        """Log-probabilities of the whole vocabulary, (..., V)."""
        logits = F.linear(self.context(g), self.weight, self.bias)
        return torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), dim=-1)
