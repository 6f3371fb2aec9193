"""Several benchmarks within a time, each in a process of its own: one that breaks does not stop the others."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Sequence

from highrank.bench.record import Say

HANGS_AFTER = 60.0  # seconds over what is left for all
ENDS_WITHIN = 5.0  # seconds from Ctrl-C
INTERRUPTED = 130  # the exit code of who was


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
        if run_part(command, left and left + HANGS_AFTER):
            failed.append(name)
    return failed


def run_part(command: Sequence[str], timeout: float | None) -> int:
    """The exit code of a process that is ended after `timeout` seconds."""
    with subprocess.Popen(command) as process:
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            return 1
        except KeyboardInterrupt:
            # At a terminal Ctrl-C reaches the part too, which then says so and ends: nobody needs to hear it twice.
            with contextlib.suppress(subprocess.TimeoutExpired):
                if process.wait(ENDS_WITHIN) == INTERRUPTED:
                    sys.exit(INTERRUPTED)
            process.kill()
            raise
