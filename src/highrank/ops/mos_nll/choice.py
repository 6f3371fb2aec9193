"""Which implementation of `mos_nll` runs."""

from typing import Literal, get_args

import torch

from highrank.ops import HALF, has_kernels

Impl = Literal["auto", "reference", "chunked", "triton"]


def check_impl(impl: str) -> None:
    if impl not in get_args(Impl):
        raise ValueError(f"unknown impl {impl!r}: choose one of {', '.join(get_args(Impl))}")


def takes_kernels(impl: str, device: torch.device, compute_dtype: torch.dtype) -> bool:
    """Whether "auto" or "triton" means the Triton kernels there; not to have them is an error of "triton" only."""
    if impl == "triton" and not has_kernels(device):
        raise ValueError(f"impl='triton' needs Triton and an NVIDIA GPU (Ampere or later), not {device}")
    wanted = impl == "triton" or (impl == "auto" and device.type == "cuda" and compute_dtype in HALF)
    return wanted and has_kernels(device)
