"""Helpers of the benchmarks: the time and the extra memory of a call, and rows written as a CSV file.

A row is a dict. Triton times calls on a GPU, `torch.utils.benchmark` on a CPU.
"""

import argparse
import contextlib
import csv
import ctypes
import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.utils.benchmark import Timer

from highrank.files import replacing
from highrank.memory import peak_bytes, reset_peak, used_bytes
from highrank.ops.cuda_graph import create_library_handles

Call = Callable[[], object]
Row = dict[str, Any]
CPU_SECONDS = 0.2  # the shortest measurement of a call on a CPU
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # parameters of glibc's mallopt(3)

# --- options and rows -----------------------------------------------------------------------------------------------


def make_parser(text: str | None, csv_name: str, rounds: bool = False) -> argparse.ArgumentParser:
    """Return a parser with a script's docstring as its help, and with --device, --csv and, if asked for, --rounds."""
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=torch.device, default="cuda" if cuda else "cpu", help="cuda or cpu")
    parser.add_argument("--csv", type=Path, default=Path(csv_name), metavar="FILE", help=f"default: {csv_name}")
    if rounds:
        parser.add_argument("--rounds", type=int, default=20 if cuda else 5, help="measurements per row")
    return parser


@contextlib.contextmanager
def failures_in_status(row: Row) -> Iterator[None]:
    """Set the status of a row to "ok", or to the reason if the block fails; the benchmark then continues."""
    row["status"] = "ok"
    release_memory()
    try:
        yield
    except Exception as error:
        row["status"] = f"failed: {type(error).__name__}: {' '.join(str(error).split())[:120]}"


def fill_times_ours(rows: list[Row]) -> None:
    """Fill in the ratio of every time to the best one of highrank's at the same size."""
    for row in rows:
        measured = [one for one in rows if one["size"] == row["size"] and one["status"] == "ok"]
        ours = [one["best_ms"] for one in measured if one["implementation"].startswith("highrank")]
        if ours and row["status"] == "ok":
            row["times_ours"] = row["best_ms"] / min(ours)


def print_row(row: Row, *names: str) -> None:
    """Print some columns of a row in one line: text as it is, numbers with the name of their column."""
    known = [(name, row[name]) for name in names if row.get(name) is not None]
    print(*(value if isinstance(value, str) else f"{name}={value:.4g}" for name, value in known), sep="  ", flush=True)


def write_csv(path: Path, rows: list[Row]) -> None:
    """Write rows as a CSV file, which is replaced as a whole. The columns that a row lacks are empty."""
    columns = dict.fromkeys(name for row in rows for name in row)
    with replacing(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(columns))
        writer.writeheader()
        writer.writerows(rows)


# --- time -----------------------------------------------------------------------------------------------------------


def summarize_times(samples: list[float]) -> Row:
    """Return median, quartiles and number of measurements in milliseconds."""
    q25, median, q75 = numpy.percentile(samples, [25, 50, 75]).tolist()
    return {"median_ms": median, "q25_ms": q25, "q75_ms": q75, "rounds": len(samples)}


def time_call(call: Call, device: torch.device, rounds: int, graph: bool = False) -> Row:
    """Time a call at least about `rounds` times, after a warm-up.

    On a GPU each call is timed between two events, with a cold L2 cache; launching its kernels is part of the time. If
    `graph`, the call is also timed inside a CUDA graph (`graph_ms`), where kernels follow one another without launches
    by the host. `best_ms` is the smaller median. On a CPU a measurement is the mean of several calls if one is too
    short for the clock.
    """
    columns = summarize_times(_cpu_samples(call, rounds) if device.type == "cpu" else _gpu_samples(call, rounds))
    columns |= {"graph_ms": None, "best_ms": columns["median_ms"]}
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


def time_blocks(call: Call, wait: Call, rounds: int, repeat: int, warm_up: int) -> Row:
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


# --- memory ---------------------------------------------------------------------------------------------------------


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
