"""Extra memory of a call: how far its peak rises above what was in use before."""

import contextlib
import ctypes
from collections.abc import Callable, Iterator

import torch

from highrank.memory import peak_bytes, reset_peak, used_bytes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # parameters of glibc's mallopt(3)


def measure_extra_mib(call: Callable[[], object], device: torch.device) -> float | None:
    """Return the extra memory of a call in MiB, or None where the system does not tell.

    The call runs twice. What the first one leaves behind (gradients, caches of libraries) is not counted.
    """
    with _freed_at_once(device):
        call()
        before = used_bytes(device)
        if before is None or not reset_peak(device):
            return None
        call()
        peak = peak_bytes(device)
    return None if peak is None else (peak - before) / 2**20


@contextlib.contextmanager
def _freed_at_once(device: torch.device) -> Iterator[None]:
    """Within the block, free() returns memory to the system at once, so that resident memory is memory in use.

    glibc otherwise keeps freed blocks of up to 32 MiB. This is how it behaves after the block.
    """
    libc = ctypes.CDLL(None)
    if device.type == "cuda" or not hasattr(libc, "mallopt"):
        yield
        return
    libc.mallopt(M_MMAP_THRESHOLD, 64 * 2**10)  # larger blocks are mappings of their own
    libc.malloc_trim(0)
    try:
        yield
    finally:
        libc.mallopt(M_MMAP_THRESHOLD, 32 * 2**20)
        libc.mallopt(M_TRIM_THRESHOLD, 64 * 2**20)
