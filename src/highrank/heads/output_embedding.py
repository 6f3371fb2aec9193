"""The word embeddings w and bias b at the end of every head: the head's own, or tied to an input embedding."""

import torch
from torch import Tensor, nn

from highrank.ops import is_autocast

INIT_RANGE = 0.1  # U(-.1, .1), as in the released code


def check_sizes(**sizes: int) -> None:
    """Refuse sizes of which nothing can be made, before torch makes something empty of them."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")


def check_dropouts(**shares: float) -> None:
    """Refuse to drop everything: what is kept would be scaled up by infinity."""
    for name, share in shares.items():
        if not 0 <= share < 1:
            raise ValueError(f"{name} must be at least 0 and below 1, got {share}")


def output_embedding(vocab_size: int, embed_dim: int, weight: nn.Parameter | None) -> nn.Parameter:
    """The given (V, D) parameter, to tie, or a new one."""
    if weight is None:
        return nn.Parameter(torch.empty(vocab_size, embed_dim).uniform_(-INIT_RANGE, INIT_RANGE))
    if not isinstance(weight, nn.Parameter):  # a plain tensor would be neither trained, saved nor moved
        raise TypeError(f"weight must be the parameter to tie, such as embedding.weight, got {type(weight).__name__}")
    if weight.shape != (vocab_size, embed_dim):
        raise ValueError(
            f"the tied weight must be (vocab_size, embed_dim) = {(vocab_size, embed_dim)}, got {tuple(weight.shape)}"
        )
    return weight


def output_bias(vocab_size: int, bias: bool) -> nn.Parameter | None:
    return nn.Parameter(torch.zeros(vocab_size)) if bias else None


def for_product(g: Tensor, weight: Tensor) -> Tensor:
    """g of any float dtype, for a product with `weight` (..., in_features); autocast casts by itself where it is on."""
    if g.shape[-1:] != weight.shape[-1:]:
        raise ValueError(f"g must have in_features = {weight.shape[-1]} as its last size, got shape {tuple(g.shape)}")
    return g if is_autocast(g.device.type) else g.to(weight.dtype)


def match_targets(g: Tensor, targets: Tensor, vocab_size: int, ignore_index: int | None) -> Tensor:
    """Targets as int64, if they are word ids for g."""
    if g.shape[:-1] != targets.shape:
        raise ValueError(f"targets must have g's leading shape {tuple(g.shape[:-1])}, got {tuple(targets.shape)}")
    if targets.dtype == torch.bool or targets.is_floating_point() or targets.is_complex():
        raise ValueError(f"targets must be word ids, whole numbers, got {targets.dtype}")
    targets = targets.long()
    if targets.device.type != "cpu" or torch.compiler.is_compiling():  # to look at them would make the host wait
        return targets
    strange = targets[((targets < 0) | (targets >= vocab_size)) & (targets != ignore_index)]
    if strange.numel():
        raise ValueError(
            f"targets must be word ids from 0 to {vocab_size - 1}, got {int(strange[0])}; "
            "if that is padding, name it with ignore_index"
        )
    return targets
