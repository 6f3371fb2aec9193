"""Time and extra memory of a call. Triton times it on a GPU, `torch.utils.benchmark` on a CPU."""

import ctypes
import gc
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch.utils.benchmark import Timer

from highrank.memory import peak_bytes, reset_peak, used_bytes
from highrank.ops.cuda_graph import create_library_handles

Call = Callable[[], object]
CPU_SECONDS = 0.2  # the shortest measurement of a call on a CPU
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # parameters of glibc's mallopt(3)


def summarize_times(samples: list[float]) -> dict[str, Any]:
    """Return the time columns of a `table.TimedRow` from measurements in milliseconds."""
    q25, median, q75 = numpy.percentile(samples, [25, 50, 75]).tolist()
    return {"median_ms": median, "q25_ms": q25, "q75_ms": q75, "rounds": len(samples)}


def time_call(call: Call, device: torch.device, rounds: int, graph: bool = False) -> dict[str, Any]:
    """Time a call at least about `rounds` times, after a warm-up; return the time columns of a `table.CallRow`.

    On a GPU each call is timed between two events, with a cold L2 cache; launching its kernels is part of the time. If
    `graph`, the call is also timed inside a CUDA graph, where kernels follow one another without launches by the host.
    On a CPU a measurement is the mean of several calls if one is too short for the clock.
    """
    columns = summarize_times(_cpu_samples(call, rounds) if device.type == "cpu" else _gpu_samples(call, rounds))
    columns["best_ms"] = columns["median_ms"]
    if graph and device.type == "cuda":
        columns["graph_ms"] = _graph_ms(call, device)
        columns["best_ms"] = min(columns["median_ms"], columns["graph_ms"])
    return columns


def _cpu_samples(call: Call, rounds: int) -> list[float]:
    timer = Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
    measured = timer.blocked_autorange(min_run_time=CPU_SECONDS)
    if len(measured.times) < rounds:
        measured = timer.blocked_autorange(min_run_time=rounds * max(measured.raw_times))
    return [seconds * 1e3 for seconds in measured.times]


def _gpu_samples(call: Call, rounds: int) -> list[float]:
    from triton.testing import do_bench

    samples: list[float] = do_bench(call, return_mode="all")  # for 100 ms
    if len(samples) < rounds:
        samples = do_bench(call, rep=math.ceil(rounds * max(samples)), return_mode="all")
    return samples


def _graph_ms(call: Call, device: torch.device) -> float:
    from triton.testing import do_bench_cudagraph

    release_memory()  # a graph has its own memory pool and cannot use what the allocator caches
    create_library_handles(device)
    return statistics.median(do_bench_cudagraph(call, return_mode="all"))


def time_blocks(call: Call, wait: Call, rounds: int, repeat: int, warm_up: int) -> dict[str, Any]:
    """Time blocks of `repeat` calls by the wall clock, each until `wait` returns; the first `warm_up` do not count.

    This is how training runs: the host prepares the next updates while the device works, and waits now and then.
    """
    samples = []
    for _ in range(warm_up + rounds):
        began = time.perf_counter()
        for _ in range(repeat):
            call()
        wait()
        samples.append((time.perf_counter() - began) * 1e3 / repeat)
    return summarize_times(samples[warm_up:])


def measure_extra_mib(call: Call, device: torch.device) -> float | None:
    """Return how far the peak memory of a call rises above the memory in use before, in MiB; None if unknown.

    The call runs twice. What the first one leaves behind (gradients, caches of libraries) is not counted.
    """
    libc = ctypes.CDLL(None)
    glibc = device.type == "cpu" and hasattr(libc, "mallopt")
    if glibc:  # return freed blocks to the system at once, so that resident memory is memory in use
        libc.mallopt(M_MMAP_THRESHOLD, 64 * 2**10)
        libc.malloc_trim(0)
    call()
    before = used_bytes(device)
    known = reset_peak(device)
    call()
    peak = peak_bytes(device)
    if glibc:  # keep freed blocks of up to 32 MiB, as glibc does by default once such blocks were freed
        libc.mallopt(M_MMAP_THRESHOLD, 32 * 2**20)
        libc.mallopt(M_TRIM_THRESHOLD, 64 * 2**20)
    return (peak - before) / 2**20 if known and peak is not None and before is not None else None


def release_memory() -> None:
    """Return the memory of deleted tensors to the GPU, if one is in use."""
    gc.collect()
    torch.cuda.empty_cache()
