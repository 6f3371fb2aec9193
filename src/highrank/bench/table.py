"""The results of a benchmark: frozen dataclasses as rows, saved as a CSV file after every measurement."""

import csv
import dataclasses
import importlib.metadata
import inspect
import os
import re
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args, get_type_hints

import torch

from highrank.errors import UserError
from highrank.files import replacing
from highrank.runs.provenance import provenance


@dataclass(frozen=True, kw_only=True)
class Row:
    """Where a number comes from. Subclasses add the columns of their benchmark, which come first in the file."""

    highrank: str
    commit: str | None
    python: str
    torch: str
    machine: str
    started: str
    cuda: str | None = None
    triton: str | None = None
    load: float | None = None  # how many processes wanted a core in the minute before


@dataclass(frozen=True, kw_only=True)
class TimedRow(Row):
    """The time of one measurement (the fields of `timing.Timing`), or why there is none."""

    device: str  # "cuda" or "cpu"
    status: str = "ok"  # or "skipped: ...", "failed: ...", "rejected: ..."
    median_ms: float | None = None
    q25_ms: float | None = None
    q75_ms: float | None = None
    min_ms: float | None = None
    max_ms: float | None = None
    rounds: int | None = None


@dataclass(frozen=True, kw_only=True)
class CallRow(TimedRow):
    """The time of a forward and backward pass, also inside a CUDA graph."""

    graph_ms: float | None = None
    graph_q25_ms: float | None = None
    graph_q75_ms: float | None = None
    best_ms: float | None = None  # the smaller of median_ms and graph_ms


R = TypeVar("R", bound=Row)


class Table(Generic[R]):
    """Rows of one type, in memory and in a CSV file that is complete after every change."""

    def __init__(self, path: Path, row_type: type[R]) -> None:
        self.path = path
        self.row_type = row_type
        self.rows: list[R] = []

    def add(self, row: R) -> None:
        """Append a row and save the file."""
        self.replace([*self.rows, row])

    def replace(self, rows: list[R]) -> None:
        """Exchange all rows, for example for the same rows with ratios between them, and save the file."""
        self.rows = rows
        with replacing(self.path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, column_names(self.row_type))
            writer.writeheader()
            writer.writerows(map(to_columns, rows))


def column_names(row_type: type[Row]) -> list[str]:
    """Return the columns of a row type: its own, then those of its base classes."""
    return [name for cls in row_type.__mro__ for name in inspect.get_annotations(cls)]


def to_columns(row: Row) -> dict[str, Any]:
    """Return the values of a row by column."""
    return {name: getattr(row, name) for name in column_names(type(row))}


def read_rows(path: Path, row_type: type[R]) -> list[R]:
    """Read the rows of a CSV file. Columns without a default must exist; columns that the type lacks are ignored."""
    hints = get_type_hints(row_type)
    fields = dataclasses.fields(row_type)
    rows = []
    try:
        with open(path, newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
    except (OSError, csv.Error, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({error}); run the benchmark again.") from None
    for number, line in enumerate(lines, start=1):
        values = {}
        for field in fields:
            text = line.get(field.name)
            if text is None and field.default is not dataclasses.MISSING:
                continue
            try:
                values[field.name] = _parse(hints[field.name], text)
            except ValueError:
                problem = "is missing" if text is None else f'must not be "{text}"'
                raise UserError(f'{path}, row {number}: "{field.name}" {problem}; run the benchmark again.') from None
        rows.append(row_type(**values))
    return rows


def _parse(hint: Any, text: str | None) -> Any:
    """Convert the text of a cell to int, float, bool or str; an empty cell is None if the type allows that."""
    if text is None:
        raise ValueError
    options = get_args(hint)
    if types.NoneType in options:
        if not text:
            return None
        hint = options[0]
    if hint is bool:
        if text not in ("True", "False"):
            raise ValueError
        return text == "True"
    return hint(text)


def origin(device: torch.device) -> dict[str, Any]:
    """Return the columns of `Row` for measurements that start now on this machine."""
    try:
        triton: str | None = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        triton = None
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {**provenance(device), "cuda": torch.version.cuda, "triton": triton, "load": load}


def machine_name(device: torch.device) -> str:
    """Return the machine's name for file names: "cpu", or a GPU's as in "h200"."""
    if device.type == "cpu":
        return "cpu"
    name = torch.cuda.get_device_name(device).lower().removeprefix("nvidia ").removeprefix("geforce ")
    return re.sub(r"[^a-z0-9]+", "_", name).strip("_")
