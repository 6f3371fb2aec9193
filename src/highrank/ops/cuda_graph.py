"""Capture of a function as a CUDA graph, which replays all of its kernels with one launch."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


def warm_up(call: Callable[[], object], device: torch.device, times: int) -> None:
    """Run `call` on a side stream, so that libraries choose their algorithms and allocate before a capture."""
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(times):
            call()
    torch.cuda.current_stream(device).wait_stream(stream)


def capture(call: Callable[[], Result], device: torch.device, pool: Any = None) -> tuple[torch.cuda.CUDAGraph, Result]:
    """Return a graph of one call, and the call's result, whose tensors every replay overwrites.

    `call` must not read a value from the device: that fails the capture and leaves torch in an unusable state. Graphs
    that never run at the same time can share their memory through `pool` (`graph.pool()` of an earlier one).
    """
    create_library_handles(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(device), torch.cuda.graph(graph, pool=pool):  # it captures on the current device only
        result = call()
    return graph, result


def create_library_handles(device: torch.device) -> None:
    """Create cuBLAS's handles, in this thread and in autograd's.

    They are created at the first matrix product of a thread, which must not happen inside a capture. A warm-up does not
    guarantee it: eager mode and capture can take different paths through the backward pass.
    """
    a = torch.ones(8, 8, device=device, requires_grad=True)
    (a @ a).sum().backward()
    torch.cuda.synchronize(device)
