"""The code, versions and machine behind a number, for run folders and records."""

import datetime
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from highrank._version import __version__


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """The code, versions and machine that computed a result."""

    highrank: str
    commit: str | None
    python: str
    torch: str
    machine: str
    started: str  # ISO 8601


def provenance(device: torch.device) -> dict[str, Any]:
    """Return the fields of a `Provenance` that describe this process."""
    return {
        "highrank": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": machine(device),
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def commit() -> str | None:
    """Return the commit of this checkout, with "+changes" if files differ from it; None for an installed package."""
    if os.environ.get("HIGHRANK_COMMIT"):  # set by hand for a copy of the tree without its git history
        return os.environ["HIGHRANK_COMMIT"]
    here = Path(__file__).resolve().parent

    def git(*arguments: str) -> str:
        # Without optional locks: a `git status` that is killed while it holds one would leave index.lock behind.
        command = ["git", "--no-optional-locks", "-C", str(here), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        if not git("ls-files", "__init__.py", "provenance.py"):
            return None  # installed inside another project's repository
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--", str(here.parent)) else "")
    except (OSError, subprocess.SubprocessError):
        return None


def machine(device: torch.device) -> str:
    """Return the name of the GPU, or of the CPU with the number of threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{_cpu_name()}, {threads} thread{'s' if threads > 1 else ''}"


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
