"""Memory of a GPU, or of this process and its machine: how much is free, in use, and was in use at the peak."""

import contextlib
import sys
from pathlib import Path

import torch

from highrank.errors import UserError

GIB = 2**30


def free_bytes(device: torch.device) -> int | None:
    """Return how much memory this process can still allocate, or None if the system does not report it."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    limits = []
    if (available := _kernel_bytes("/proc/meminfo", "MemAvailable")) is not None:
        limits.append(available)
    with contextlib.suppress(OSError, ValueError):  # the limit of a container; "max" where there is none
        group = Path("/sys/fs/cgroup")
        used = int((group / "memory.current").read_text())
        used -= _kernel_bytes("/sys/fs/cgroup/memory.stat", "inactive_file") or 0  # cached files are dropped on demand
        limits.append(int((group / "memory.max").read_text()) - used)
    return min(limits, default=None)


def require_bytes(needed: int, device: torch.device, task: str, fix: str) -> None:
    """Raise a UserError if a task needs more memory than is known to be free."""
    free = free_bytes(device)
    if free is not None and needed > free:
        amounts = f"needs about {needed / GIB:.1f} GiB, but only {free / GIB:.1f} GiB are free"
        raise UserError(f"{task} {amounts}: {fix}.")


def used_bytes(device: torch.device) -> int | None:
    """Return the memory allocated on a GPU, or the resident memory of this process (Linux only)."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    return _kernel_bytes("/proc/self/status", "VmRSS")


def reset_peak(device: torch.device) -> bool:
    """Restart the count of `peak_bytes`; return False if it still counts from the start of the process."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return True
    try:
        Path("/proc/self/clear_refs").write_text("5")  # 5 resets VmHWM, see proc(5)
    except OSError:
        return False
    return True


def peak_bytes(device: torch.device) -> int | None:
    """Return the largest amount of memory in use since `reset_peak`, or None if the system does not report it."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if (peak := _kernel_bytes("/proc/self/status", "VmHWM")) is not None:
        return peak
    with contextlib.suppress(ImportError):  # Windows has no such module
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return None


def _kernel_bytes(path: str, key: str) -> int | None:
    """Return the value of a line such as `VmRSS:  1024 kB` or `inactive_file 4096` in a file of the kernel."""
    with contextlib.suppress(OSError):
        for line in Path(path).read_text().splitlines():
            if line.startswith((f"{key}:", f"{key} ")):
                _, value, *unit = line.split()
                return int(value) * (1024 if unit else 1)
    return None
