"""The terminal: results on standard output; progress, notes and errors on standard error."""

import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from highrank.progress import OnStage

# When output is not a terminal, rich would cut tables to 80 columns; COLUMNS overrides the width.
out = Console(highlight=False, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 160)
err = Console(highlight=False, stderr=True)

LINE_EVERY_SECONDS = 30.0


def say(text: str, style: str = "") -> None:
    """Print a line verbatim: no markup (paths may contain brackets), no wrapping (commands are copied)."""
    out.print(text, soft_wrap=True, markup=False, style=style)


def note(text: str) -> None:
    """Print a line verbatim on standard error."""
    err.print(text, soft_wrap=True, markup=False)


def print_json(value: Any) -> None:
    """Print strict JSON: infinities and NaN, as of a model that diverged, become null."""
    print(json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False))


def print_written(*files: Path | tuple[Path, str], as_json: bool = False) -> None:
    """Print where the output was written (on standard error next to JSON); a path may come with a remark."""
    lines = [str(file) if isinstance(file, Path) else f"{file[0]} ({file[1]})" for file in files]
    text = "Written to" + (f" {lines[0]}" if len(lines) == 1 else ":" + "".join(f"\n  {line}" for line in lines))
    (note if as_json else say)(text)


@contextlib.contextmanager
def progress() -> Iterator[OnStage]:
    """Show the progress of the block's stages: bars with the time left on a terminal, a line now and then elsewhere."""
    if not err.is_terminal:
        yield _lines()
        return
    from rich.markup import escape
    from rich.progress import Progress, TaskID, TimeElapsedColumn

    with Progress(*Progress.get_default_columns(), TimeElapsedColumn(), console=err, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def on_stage(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                for earlier in tasks.values():
                    bars.update(earlier, visible=False)
                tasks[stage] = bars.add_task(escape(stage), total=None)
            bars.update(tasks[stage], completed=done, total=total)

        yield on_stage


def _lines() -> OnStage:
    began: dict[str, float] = {}
    printed: dict[str, float] = {}

    def on_stage(stage: str, done: int, total: int | None) -> None:
        now = time.perf_counter()
        if total is None:
            note(stage)
            return
        start = began.setdefault(stage, now)
        if 0 < done < total and now - printed.setdefault(stage, now) >= LINE_EVERY_SECONDS:
            printed[stage] = now
            note(f"{stage}: {done / total:.0%}, about {(now - start) * (total - done) / done:,.0f} s left")
        if done == total:
            began.pop(stage)  # a search repeats the stage for its next point

    return on_stage


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
