"""A name for what is kept of a model's work on a text, so that it is never taken for that of another model or text.

It is of the weights in memory, not of a file: a run that is still training may have replaced that since it was read.
"""

import hashlib

import torch
from torch import Tensor

from highrank.models.language_model import LanguageModel


def fingerprint(about: str, model: LanguageModel, ids: Tensor) -> str:
    """Tells apart what `about` says of the work, heads, weights and texts."""
    digest = hashlib.sha256(f"{about} {type(model.head).__name__}".encode())
    for name, p in model.named_parameters():
        digest.update(f"{name} {tuple(p.shape)} {p.dtype}".encode())
        digest.update(_bytes(p))
    digest.update(_bytes(ids))
    return digest.hexdigest()[:16]


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data  # no copy of a model's weights
