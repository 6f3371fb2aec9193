"""Several benchmarks within a time, each in a process of its own: one that breaks does not stop the others."""

import subprocess
import sys
import time
from collections.abc import Sequence

from highrank.bench.record import Say

HANGS_AFTER = 60.0  # seconds over what is left for all


def run_parts(parts: Sequence[Sequence[str]], options: Sequence[str], seconds: float | None, say: Say) -> list[str]:
    """Runs `highrank bench PART OPTIONS` one after the other, and returns the names of those that failed."""
    began, failed = time.monotonic(), []
    for i, part in enumerate(parts):
        name = " ".join(part)
        command = [sys.executable, "-m", "highrank", "bench", *part, *options]
        left = None
        if seconds:
            left = max(seconds - (time.monotonic() - began), 1.0)
            # What is left is shared by the parts to come; the last may use up what the others did not.
            command += ["--seconds", f"{left * 2 / (len(parts) - i + 1):.0f}"]
        say(f"== {name}  [{time.monotonic() - began:.0f} s]")
        try:
            code = subprocess.run(command, check=False, timeout=left and left + HANGS_AFTER).returncode
        except subprocess.TimeoutExpired:
            code = 1
        if code:
            failed.append(name)
    return failed
