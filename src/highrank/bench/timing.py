"""Medians and quartiles over rounds in which everything takes its turn, so a slow moment of the machine meets all.

On a GPU a call is timed between two events on an idle device: what launching costs is part of it. `graphed` times a
CUDA graph of the call instead, and `busy_ms` adds up the kernels alone, the floor of any graph of them.
"""

import contextlib
import gc
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch

from highrank.ops import cuda_graph

Call = Callable[[], object]
OUT_OF_TIME = "skipped: out of time"
REPLAYS = 5  # between two events: a replay alone may be shorter than the launch of its graph


class Timing(NamedTuple):
    median_ms: float
    q25_ms: float
    q75_ms: float
    min_ms: float
    max_ms: float
    rounds: int

    @classmethod
    def of(cls, times: list[float]) -> "Timing":
        q25, median, q75 = statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else times * 3
        return cls(median, q25, q75, min(times), max(times), len(times))


class Clock:
    """Says when to start nothing new."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds, self.began = seconds, time.monotonic()

    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def over(self) -> bool:
        return self.seconds is not None and self.elapsed() > self.seconds


def reason(error: Exception) -> str:
    """What stands in the row of something that failed."""
    lines = str(error).strip().splitlines() or [""]
    return f"failed: {type(error).__name__}: {lines[0][:120]}"


def release(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        with contextlib.suppress(RuntimeError):  # after an error that the device does not recover from
            torch.cuda.empty_cache()


def once(call: Call, device: torch.device, repeat: int = 1) -> float:
    """Milliseconds of a call, the mean of `repeat` without a pause."""
    if device.type == "cuda":
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize(device)
        start.record()
        for _ in range(repeat):
            call()
        end.record()
        torch.cuda.synchronize(device)
        return float(start.elapsed_time(end)) / repeat
    began = time.perf_counter()
    for _ in range(repeat):
        call()
    return (time.perf_counter() - began) * 1e3 / repeat


def in_turns(
    calls: Mapping[str, Call],
    device: torch.device,
    rounds: int,
    seconds: float,
    repeat: int = 1,
    at_least: float = 0.0,
) -> tuple[dict[str, Timing], dict[str, str]]:
    """Timings by name, and the reasons of those that failed.

    After `seconds`, three rounds are enough. Before `at_least` seconds no number of rounds is, up to ten times as many:
    what takes milliseconds would otherwise fit into one slow moment of the machine.
    """
    warm_up = 3 if device.type == "cuda" else 1
    times: dict[str, list[float]] = {name: [] for name in calls}
    failures: dict[str, str] = {}
    for name, call in calls.items():
        try:
            for _ in range(warm_up):
                once(call, device)
        except Exception as error:  # a peer that does not work here is a finding, and no reason to stop
            failures[name] = reason(error)
            release(device)
    began = time.perf_counter()
    for i in range(10 * rounds):
        elapsed = time.perf_counter() - began
        if (i >= rounds and elapsed >= at_least) or (i >= 3 and elapsed > seconds):
            break
        for name, call in calls.items():
            if name in failures:
                continue
            try:
                times[name].append(once(call, device, repeat))
            except Exception as error:
                failures[name] = reason(error)
                release(device)
    return {name: Timing.of(t) for name, t in times.items() if name not in failures}, failures


def capture(call: Call, device: torch.device) -> Call:
    """A CUDA graph of the call; calling it replays. What asks the device for a value must not come here: a capture that
    fails leaves torch unable to go on."""
    release(device)  # a capture must not run out of memory
    cuda_graph.warm_up(call, device, times=3)
    graph, _ = cuda_graph.capture(call, device)
    return graph.replay


def graphed(call: Call, device: torch.device, rounds: int, seconds: float) -> Timing:
    timings, failures = in_turns({"graph": capture(call, device)}, device, rounds, seconds, REPLAYS)
    if failures:
        raise RuntimeError(failures["graph"])
    return timings["graph"]


def busy_ms(call: Call, device: torch.device, repeat: int = 3) -> float | None:
    """Milliseconds of the GPU's kernels in one call, without the gaps between them; None where it cannot be known."""
    from torch.profiler import ProfilerActivity, profile

    call()
    torch.cuda.synchronize(device)
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        for _ in range(repeat):
            call()
        torch.cuda.synchronize(device)
    kernels = [e for e in profiler.events() or [] if e.device_type == torch.autograd.DeviceType.CUDA]
    spans = [e.time_range.elapsed_us() for e in kernels if not getattr(e, "is_user_annotation", False)]
    return sum(spans) / repeat / 1e3 if spans else None


def matrix_ceiling(dtype: torch.dtype, device: torch.device) -> tuple[int, float]:
    """The side of a cube, and the best TFLOP/s that the matrix library reaches on it."""
    side, rounds = (8192, 10) if device.type == "cuda" else (2048, 3)
    if device.type == "cpu" and dtype != torch.float32:
        side = 512  # half-precision products crawl on many CPUs
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    once(lambda: torch.mm(a, b, out=out), device, 2)
    best = min(once(lambda: torch.mm(a, b, out=out), device) for _ in range(rounds))
    return side, 2 * side**3 / best / 1e9


def time_columns(timing: Timing | None, prefix: str = "", names: Iterable[str] = Timing._fields) -> dict[str, Any]:
    """The columns of a timing, empty where there is none."""
    return {prefix + name: None if timing is None else getattr(timing, name) for name in names}
