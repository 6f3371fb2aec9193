"""The precision of training: autocast dtypes of the backbone and the head, and the scale of the loss."""

import contextlib
from typing import NamedTuple

import torch

from highrank.heads import Head
from highrank.recipes.recipe import PrecisionName

# Memory for the loss on a GPU, unless the head sets its own. Larger slabs are faster, and a GPU for training has room.
TRAINING_SLAB_BYTES = 512 * 2**20
MIXED_LOSS_SCALE = 1024.0  # keeps float16 gradients of a mean over a thousand tokens from underflowing


class Precision(NamedTuple):
    """Autocast dtypes (None: no autocast) and the factor that keeps half-precision gradients from underflowing."""

    backbone: torch.dtype | None
    head: torch.dtype | None
    loss_scale: float = 1.0

    @staticmethod
    def name_of(name: PrecisionName, device: torch.device) -> PrecisionName:
        """Replace "auto" by the precision that it selects on `device`."""
        if name != "auto":
            return name
        return "mixed" if device.type == "cuda" else "float32"

    @classmethod
    def of(cls, name: PrecisionName, device: torch.device) -> "Precision":
        """Return the dtypes and the loss scale of a named precision."""
        name = cls.name_of(name, device)
        if name == "mixed" and device.type != "cuda":
            name = "bfloat16"  # float16 is no faster on a CPU
        if name == "mixed":
            return cls(torch.float16, torch.bfloat16, MIXED_LOSS_SCALE)
        return cls(torch.bfloat16, torch.bfloat16) if name == "bfloat16" else cls(None, None)


def autocast(device: torch.device, dtype: torch.dtype | None) -> contextlib.AbstractContextManager[None]:
    """Return a context of autocast to `dtype`, or an empty one."""
    return contextlib.nullcontext() if dtype is None else torch.autocast(device.type, dtype)


def training_slab_bytes(head: Head, device: torch.device) -> int | None:
    """Return the memory for the loss in training: the head's own setting, or more than its default on a GPU."""
    return TRAINING_SLAB_BYTES if head.slab_bytes is None and device.type == "cuda" else head.slab_bytes
