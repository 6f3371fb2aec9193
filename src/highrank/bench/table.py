"""A benchmark as jobs that fill in rows: frozen dataclasses, saved as a CSV file with one column per field."""

import csv
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, get_args, get_type_hints

from highrank.bench.measure import release_memory
from highrank.errors import UserError
from highrank.files import replacing
from highrank.progress import OnProgress, no_progress
from highrank.runs.provenance import Provenance


@dataclass(frozen=True, kw_only=True)
class TimedRow(Provenance):
    """The time of one measurement, or why there is none. Subclasses add the columns of their benchmark."""

    shown: ClassVar[tuple[str, ...]]  # the columns that a terminal has room for

    device: str  # "cuda" or "cpu"
    status: str = "ok"  # or "failed: " and the reason
    median_ms: float | None = None
    q25_ms: float | None = None
    q75_ms: float | None = None
    rounds: int | None = None  # how many measurements


@dataclass(frozen=True, kw_only=True)
class CallRow(TimedRow):
    """The time of a forward and backward pass of one implementation at one size."""

    size: str
    implementation: str
    graph_ms: float | None = None  # inside a CUDA graph
    best_ms: float | None = None  # the smaller of median_ms and graph_ms
    times_ours: float | None = None  # best_ms over that of the fastest "highrank" at the same size


T = TypeVar("T", bound=TimedRow)
C = TypeVar("C", bound=CallRow)


@dataclass(frozen=True)
class Benchmark(Generic[T]):
    """Several measurements whose rows form one table."""

    name: str
    jobs: Sequence[tuple[T, Callable[[T], T]]]  # the row as known before, and a function that fills in its times
    compare: Callable[[list[T]], list[T]]  # fills in ratios between rows


def run_benchmark(benchmark: Benchmark[T], path: Path, on_progress: OnProgress = no_progress) -> list[T]:
    """Run all jobs and return their rows, which are also written to the CSV file `path` after each job.

    A job that raises an exception leaves its reason in the row's status, and the next one starts.
    """
    rows: list[T] = []
    for i, (row, measure) in enumerate(benchmark.jobs):
        on_progress(i, len(benchmark.jobs))
        try:
            release_memory()
            row = measure(row)
        except Exception as error:
            reason = " ".join(str(error).split())[:120]
            row = replace(row, status=f"failed: {type(error).__name__}: {reason}")
        rows = benchmark.compare([*rows, row])
        write_csv(path, [to_columns(row) for row in rows])
    on_progress(len(benchmark.jobs), len(benchmark.jobs))
    return rows


def fill_times_ours(rows: list[C]) -> list[C]:
    """Fill in the ratio of every row to the fastest of highrank's implementations at the same size."""
    ours: dict[str, float] = {}
    for row in rows:
        if row.implementation.startswith("highrank") and row.best_ms:
            ours[row.size] = min(row.best_ms, ours.get(row.size, row.best_ms))
    return [replace(row, times_ours=ratio(row.best_ms, ours.get(row.size))) for row in rows]


def ratio(a: float | None, b: float | None) -> float | None:
    """Return a / b, or None if one of them was not measured."""
    return a / b if a and b else None


def to_columns(row: TimedRow) -> dict[str, Any]:
    """Return the values of a row by column: those of its own class first, then those of its base classes."""
    names = [name for cls in type(row).__mro__ for name in inspect.get_annotations(cls) if name != "shown"]
    return {name: getattr(row, name) for name in names}


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write one or more rows with the same columns as a CSV file, which is replaced as a whole."""
    with replacing(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def read_rows(path: Path, row_type: type[T]) -> list[T]:
    """Read the rows of a CSV file. Columns without a default must exist; columns that the type lacks are ignored."""
    hints = get_type_hints(row_type)
    try:
        with open(path, newline="", encoding="utf-8") as file:
            lines = [{name: line[name] for name in line if name in hints} for line in csv.DictReader(file)]
        return [row_type(**{name: _parse(hints[name], line[name]) for name in line}) for line in lines]
    except (OSError, csv.Error, ValueError, TypeError) as error:
        raise UserError(f"{path} cannot be read ({error}); run the benchmark again.") from None


def _parse(hint: Any, text: str) -> Any:
    """Convert the text of a cell to the type of its column; an empty cell is None if the type allows that."""
    options = get_args(hint)  # of X | None
    if options:
        return options[0](text) if text else None
    return hint(text)
