"""Checks on sizes and dropout rates, and the initial word embedding: shared by heads and models."""

import torch
from torch import nn

INIT_RANGE = 0.1  # word embeddings start as U(-0.1, 0.1), as in the released code


def check_sizes(**sizes: int) -> None:
    """Raise a ValueError for a size below 1; torch itself would accept 0 and build an empty tensor."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")


def check_dropouts(**rates: float) -> None:
    """Raise a ValueError for a rate outside [0, 1); at 1 the survivors would be scaled by infinity."""
    for name, rate in rates.items():
        if not 0 <= rate < 1:
            raise ValueError(f"{name} must be at least 0 and below 1, got {rate}")


def new_embedding(vocab_size: int, embed_dim: int) -> nn.Parameter:
    """Return a (V, D) word embedding drawn from U(-INIT_RANGE, INIT_RANGE)."""
    return nn.Parameter(torch.empty(vocab_size, embed_dim).uniform_(-INIT_RANGE, INIT_RANGE))
