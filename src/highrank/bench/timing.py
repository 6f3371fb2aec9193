"""Times of calls in milliseconds: Triton measures on a GPU, `torch.utils.benchmark` on a CPU."""

import contextlib
import gc
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from highrank.ops.cuda_graph import create_library_handles

Call = Callable[[], object]
CPU_SECONDS = 0.2  # the shortest measurement of a call on a CPU


@dataclass(frozen=True)
class Timing:
    """Statistics of repeated measurements of one call."""

    median_ms: float
    q25_ms: float
    q75_ms: float
    min_ms: float
    max_ms: float
    rounds: int  # how many measurements

    @classmethod
    def of(cls, samples: list[float]) -> "Timing":
        """Summarize measurements in milliseconds."""
        quartiles = statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else samples * 3
        return cls(quartiles[1], quartiles[0], quartiles[2], min(samples), max(samples), len(samples))


def time_call(call: Call, device: torch.device, rounds: int, clock: Callable[[], float] = time.perf_counter) -> Timing:
    """Time a call at least about `rounds` times, after a warm-up.

    On a GPU each call is timed between two events, with a cold L2 cache; launching its kernels is part of the time.
    On a CPU a measurement is the mean of several calls if one is too short for `clock`.
    """
    return Timing.of(_measure_on_gpu(call, rounds) if device.type == "cuda" else _measure_on_cpu(call, rounds, clock))


def _measure_on_gpu(call: Call, rounds: int) -> list[float]:
    from triton.testing import do_bench

    samples: list[float] = do_bench(call, return_mode="all")  # for 100 ms
    if len(samples) < rounds:
        samples = do_bench(call, rep=math.ceil(rounds * max(samples)), return_mode="all")
    return samples


def _measure_on_cpu(call: Call, rounds: int, clock: Callable[[], float]) -> list[float]:
    from torch.utils.benchmark import Timer

    timer = Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads(), timer=clock)
    measured = timer.blocked_autorange(min_run_time=CPU_SECONDS)
    if len(measured.times) < rounds:
        measured = timer.blocked_autorange(min_run_time=rounds * max(measured.raw_times))
    return [seconds * 1e3 for seconds in measured.times]


def time_graph(call: Call, device: torch.device) -> Timing:
    """Time a call inside a CUDA graph, where its kernels follow one another without launches by the host.

    The call must not read a value from the device: that fails the capture, and no later capture works.
    """
    from triton.testing import do_bench_cudagraph

    release_memory(device)  # a graph has its own memory pool and cannot use what the allocator caches
    create_library_handles(device)
    return Timing.of(do_bench_cudagraph(call, return_mode="all"))


def time_blocks(call: Call, wait: Call, rounds: int, repeat: int, warm_up: int) -> Timing:
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
    return Timing.of(samples[warm_up:])


def time_columns(call: Call, device: torch.device, rounds: int, graph: bool) -> dict[str, Any]:
    """Return the time columns of a `table.CallRow`: times of plain calls and, if `graph`, inside a CUDA graph."""
    eager = time_call(call, device, rounds)
    columns = {**asdict(eager), "best_ms": eager.median_ms}
    if graph:
        timing = time_graph(call, device)
        columns |= {"graph_ms": timing.median_ms, "graph_q25_ms": timing.q25_ms, "graph_q75_ms": timing.q75_ms}
        columns["best_ms"] = min(eager.median_ms, timing.median_ms)
    return columns


def matrix_ceiling(dtype: torch.dtype, device: torch.device) -> float:
    """Return the TFLOP/s that the matrix library reaches on a product of two large square matrices."""
    side = 8192 if device.type == "cuda" else 1024
    if device.type == "cpu" and dtype != torch.float32:
        side = 256  # many CPUs have no fast half-precision products
    a = torch.randn(side, side, device=device).to(dtype)
    timing = time_call(lambda: a @ a, device, rounds=3)
    return 2 * side**3 / timing.min_ms / 1e9


def release_memory(device: torch.device) -> None:
    """Return the memory of deleted tensors to the device."""
    gc.collect()
    if device.type == "cuda":
        with contextlib.suppress(RuntimeError):  # after an error that the device does not recover from
            torch.cuda.empty_cache()
