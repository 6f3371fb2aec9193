"""How much memory an analysis needs, how much there is, and how much it took."""

import contextlib
import sys
from pathlib import Path

import torch

from highrank.analysis.rank import MAX_ELEMENTS, stack_rows
from highrank.errors import UserError

KLD_BLOCK = 500
GIB = 2**30


def needed_bytes(tokens: int, vocabulary: int, projection: int | None, contexts: int, window: int) -> int:
    """Peak of an analysis, without the model: the stack that QR factors, its copy, R, and the sampled contexts."""
    columns = projection or vocabulary
    rows = min(tokens, stack_rows(columns))
    elements = 2 * rows * columns + min(rows, columns) ** 2
    elements += vocabulary * (projection or 0)
    elements += contexts * vocabulary  # kept for the pairwise KLD
    elements += 10 * window * vocabulary  # a mixture's log-probabilities on the way, then blocks of the KLD
    return int(8.8 * elements)  # a tenth for LAPACK's own; measured peaks lie below


def free_bytes(device: torch.device) -> int | None:
    """What this process may still take, or None where that cannot be known."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    found = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found.append(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")))
    with contextlib.suppress(OSError, ValueError):  # a container's limit
        folder = Path("/sys/fs/cgroup")
        limit = int((folder / "memory.max").read_text())
        found.append(limit - int((folder / "memory.current").read_text()))
    return min(found, default=None)


def check_memory(
    tokens: int, vocabulary: int, projection: int | None, contexts: int, window: int, device: torch.device
) -> int:
    """The bytes an analysis needs; one sentence that names a way out if they are not there."""
    needed = needed_bytes(tokens, vocabulary, projection, contexts, window)
    free = free_bytes(device)
    addressable = projection is not None or min(tokens, vocabulary) * vocabulary <= MAX_ELEMENTS
    if addressable and (free is None or needed <= free):
        return needed
    if addressable:
        where = "GPU memory" if device.type == "cuda" else "memory"
        problem = f"needs about {needed / GIB:.1f} GiB of {where} and {(free or 0) / GIB:.1f} are free"
    else:
        problem = "needs a matrix with more than 2^31 elements, which LAPACK cannot factor"
    kind = "the analysis" if projection else "the exact analysis"
    if projection:
        way_out = f"use a smaller --projection than {projection}"
    else:
        sizes = [size for size in (500, 1000, 2000, 4000) if size < vocabulary]
        fitting = [s for s in sizes if free is None or needed_bytes(tokens, vocabulary, s, contexts, window) < free]
        way_out = (
            f"add --projection {max(fitting)} (columns projected at random: a lower bound on the rank, and the top of "
            "the spectrum), or lower --tokens"
            if fitting
            else "lower --tokens and --contexts"
        )
    raise UserError(f"{kind} of {tokens:,} x {vocabulary:,} log-probabilities {problem}: {way_out}.")


class PeakMemory:
    """The most memory held since `reset`: of the GPU, or of this process."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        else:
            with contextlib.suppress(OSError):  # Linux forgets a process's peak when told so
                Path("/proc/self/clear_refs").write_text("5")

    def bytes(self) -> int | None:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        with contextlib.suppress(OSError, StopIteration, ValueError):
            lines = Path("/proc/self/status").read_text().splitlines()
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
        with contextlib.suppress(ImportError):  # not on Windows
            import resource

            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            return peak if sys.platform == "darwin" else peak * 1024
        return None
