"""The fast arithmetic under heads and models. Ops know tensors only: no files, no devices chosen, no progress bars."""

import importlib.util
import os
from functools import cache

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)


@cache
def has_kernels(device: torch.device) -> bool:
    """Whether Triton kernels run there: an NVIDIA GPU since Ampere, or a CPU under TRITON_INTERPRET=1."""
    if importlib.util.find_spec("triton") is None:
        return False
    if device.type == "cuda":
        return torch.version.cuda is not None and torch.cuda.get_device_capability(device) >= (8, 0)
    return device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"


def autocast_dtype(x: Tensor) -> torch.dtype:
    """What an op computes in: the autocast dtype where autocast is on, else x's."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
