"""The Mixture-of-Contexts head (section 2.5 of the paper): the low-rank control for the mixture of softmaxes.

    p(x | c) = softmax((sum_k pi_k h_k) W^T + b)_x      mixed before the softmax: the rank of log p is at most D + 2

Shapes: g (..., in_features), K components, D embedding size, V vocabulary.
"""

import torch
from torch import Tensor

from highrank.heads.mos import MoSHead


class MoCHead(MoSHead):
    """A `MoSHead` with the same parameters, pi and h, that mixes the context vectors instead of the probabilities.

    >>> head = MoCHead(in_features=620, embed_dim=280, vocab_size=10_000, n_components=15, dropout=0.29)
    >>> head.log_prob(torch.randn(5, 620)).shape
    torch.Size([5, 10000])
    """

    def softmaxes(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """Return log 1 = 0 (..., 1) and the mixed context vector (..., 1, D): a single softmax."""
        pi, h = self.components(g)
        mixed = pi.to(h.dtype).unsqueeze(-2) @ h  # (..., 1, D): sum_k pi_k h_k
        return mixed.new_zeros(mixed.shape[:-1], dtype=torch.promote_types(mixed.dtype, torch.float32)), mixed
