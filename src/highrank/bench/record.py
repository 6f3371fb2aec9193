"""What a benchmark leaves: a CSV that is on disk after every row, with machine, versions and commit in each."""

import csv
import importlib.metadata
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from highrank.files import replacing
from highrank.runs.provenance import provenance

Row = dict[str, Any]
Say = Callable[[str], None]


def origin(device: torch.device) -> Row:
    """Where the numbers of a run come from; `load` is the processes that wanted a core in the minute before it."""
    try:
        triton: str | None = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        triton = None
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {**provenance(device), "cuda": torch.version.cuda, "triton": triton, "load": load}


def machine_name(device: torch.device) -> str:
    """For names of files: "cpu", or the GPU as in "h200"."""
    if device.type == "cpu":
        return "cpu"
    name = torch.cuda.get_device_name(device).lower().removeprefix("nvidia ").removeprefix("geforce ")
    return re.sub(r"[^a-z0-9]+", "_", name).strip("_")


class Record:
    """Rows with the same columns, in the order of the first one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[Row] = []

    def add(self, row: Row) -> None:
        self.rows.append(row)
        self.save()

    def save(self) -> None:
        with replacing(self.path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self.rows[0])
            writer.writeheader()
            writer.writerows(self.rows)
