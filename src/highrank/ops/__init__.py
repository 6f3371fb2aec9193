"""The fast arithmetic under heads and models. Ops know tensors only: no files, no devices chosen, no progress bars."""

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
    """Whether Triton kernels run there: an NVIDIA GPU since Ampere, or a CPU under TRITON_INTERPRET=1."""
    if importlib.util.find_spec("triton") is None:
        return False
    if device.type == "cuda":
        return torch.version.cuda is not None and torch.cuda.get_device_capability(device) >= (8, 0)
    return device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"


def autocast_dtype(x: Tensor) -> torch.dtype:
    """What an op computes in: the autocast dtype where autocast is on, else x's."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if is_autocast(device) else x.dtype


def is_autocast(device: str) -> bool:
    # The meta device has no autocast and answers with an error. torch.amp.is_autocast_available would know, but torch
    # 2.11's compiler does not know it.
    return device != "meta" and torch.is_autocast_enabled(device)


def without_autocast(device: str) -> contextlib.AbstractContextManager[None]:
    return torch.autocast(device, enabled=False) if is_autocast(device) else contextlib.nullcontext()


def is_capturing(x: Tensor) -> bool:
    """Whether a CUDA graph is being captured: then the host must not look at numbers."""
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def only_once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """For a backward pass whose result is no function of its inputs to autograd, nor of autocast around it.

    torch's `once_differentiable` refuses only where the upstream gradient is differentiated, and else takes what
    depends on the inputs for constants: second derivatives that are silently wrong.
    """

    @functools.wraps(backward)
    def checked(ctx: Any, upstream: Tensor) -> Any:
        if torch.is_grad_enabled():  # create_graph=True
            raise RuntimeError(
                "this loss has no second derivative: choose impl='reference', which has, for create_graph"
            )
        with without_autocast(upstream.device.type):
            return backward(ctx, upstream)

    return checked
