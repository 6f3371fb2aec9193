"""Fast tensor arithmetic for heads and models, one folder per op, each with its definition in plain torch."""

import contextlib
import functools
import importlib.util
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)


@cache
def has_kernels(device: torch.device) -> bool:
    """Return whether Triton kernels run on `device`: an NVIDIA GPU since Ampere, or a CPU under TRITON_INTERPRET=1."""
    if importlib.util.find_spec("triton") is None:
        return False
    if device.type == "cuda":
        return torch.version.cuda is not None and torch.cuda.get_device_capability(device) >= (8, 0)
    return device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"


def autocast_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype in which an op computes: the autocast dtype where autocast is on, else x's."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if is_autocast(device) else x.dtype


def is_autocast(device: str) -> bool:
    """Return whether autocast is on for a type of device."""
    # torch raises an error for the meta device. torch.amp.is_autocast_available would avoid it, but the compiler of
    # torch 2.11 does not support that function.
    return device != "meta" and torch.is_autocast_enabled(device)


def without_autocast(device: str) -> contextlib.AbstractContextManager[None]:
    """Turn autocast off for a block."""
    return torch.autocast(device, enabled=False) if is_autocast(device) else contextlib.nullcontext()


def is_capturing(x: Tensor) -> bool:
    """Return whether a CUDA graph is being captured, during which the host must not read values."""
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def only_once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the `backward` of an autograd function that autograd cannot differentiate, and run it without autocast.

    torch's `once_differentiable` raises only if the upstream gradient itself requires a gradient. Otherwise it treats
    the results as constants, although they depend on the inputs, and second derivatives are silently wrong.
    """

    @functools.wraps(backward)
    def checked(ctx: Any, upstream: Tensor) -> Any:
        if torch.is_grad_enabled():  # create_graph=True
            raise RuntimeError("create_graph=True needs the definition in plain torch: impl='reference' of a loss")
        with without_autocast(upstream.device.type):
            return backward(ctx, upstream)

    return checked
