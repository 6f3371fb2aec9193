"""A benchmark is a list of jobs, each of which fills in one row of a table."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

import torch

from highrank.bench.table import Table, TimedRow, machine_name
from highrank.bench.timing import release_memory
from highrank.progress import OnProgress, no_progress

T = TypeVar("T", bound=TimedRow)


@dataclass(frozen=True)
class Job(Generic[T]):
    """One measurement."""

    row: T  # what is known before
    measure: Callable[[T], T]  # returns the row with its times, and may fail


@dataclass(frozen=True)
class Benchmark(Generic[T]):
    """Several measurements whose rows form one table."""

    name: str
    row_type: type[T]
    jobs: list[Job[T]]
    compare: Callable[[list[T]], list[T]] = lambda rows: rows  # fills in ratios between rows


def run_benchmark(
    benchmark: Benchmark[T],
    folder: Path,
    device: torch.device,
    deadline: float = math.inf,
    on_progress: OnProgress = no_progress,
) -> Table[T]:
    """Run all jobs and return their rows, which are also saved in `folder` after each job.

    A job that fails leaves its reason in the row's status. No job starts after `deadline` (of `time.monotonic`).
    """
    table = Table(folder / f"{benchmark.name}_{machine_name(device)}.csv", benchmark.row_type)
    for i, job in enumerate(benchmark.jobs):
        on_progress(i, len(benchmark.jobs))
        if time.monotonic() > deadline:
            row = replace(job.row, status="skipped: out of time")
        else:
            try:
                row = job.measure(job.row)
            except Exception as error:  # one that fails must not stop the others
                row = replace(job.row, status=describe_failure(error))
            release_memory(device)
        table.replace(benchmark.compare([*table.rows, row]))
    on_progress(len(benchmark.jobs), len(benchmark.jobs))
    return table


def describe_failure(error: Exception) -> str:
    """Return the status of a row whose measurement raised an exception: its type and the start of its message."""
    lines = str(error).strip().splitlines() or [""]
    return f"failed: {type(error).__name__}: {lines[0][:120]}"
