"""The three kinds of dropout in AWD-LSTM (Merity et al. 2017), and noise, as functions of tensors.

Shapes: T time steps, B batch columns, H features. Each is the identity at p = 0; callers pass 0 in evaluation.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def variational_dropout(x: Tensor, p: float, time_dim: int = 0, groups: int = 1) -> Tensor:
    """Drop the same features at every time step: one mask of shape (1, B, H) for x of shape (T, B, H).

    A tensor of fewer than three dimensions has no time dimension, so every row gets its own mask.
    The features are `groups` groups of equal size, side by side, which share one mask of that size.
    """
    if p == 0:
        return x
    shape = list(x.shape)
    if x.dim() >= 3:
        shape[time_dim] = 1
    shape[-1] //= groups
    mask = x.new_empty(shape).bernoulli_(1 - p).div_(1 - p)
    if groups > 1:
        mask = torch.cat([mask] * groups, dim=-1)
    return x * mask


def gaussian_noise(x: Tensor, std: float) -> Tensor:
    """Add normal noise of standard deviation `std`, independent in every element."""
    return x if std == 0 else x + std * torch.randn_like(x)


def embedding_dropout(words: Tensor, weight: Tensor, p: float) -> Tensor:
    """Embed `words` and drop whole words: a dropped word is zero at all its places in the batch.

    (T, B) ids, (V, D) -> (T, B, D). Equal to masking rows of `weight`, without copying all V of them.
    """
    embedded = F.embedding(words, weight)
    if p == 0:
        return embedded
    keep = weight.new_empty(weight.shape[0], 1).bernoulli_(1 - p).div_(1 - p)  # (V, 1)
    return embedded * F.embedding(words, keep)


def weight_dropout(weight: Tensor, p: float) -> Tensor:
    """Apply DropConnect to a weight matrix, with a new mask at every call."""
    return weight if p == 0 else F.dropout(weight, p, training=True)
