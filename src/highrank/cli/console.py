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
from rich.table import Table

from highrank.progress import OnStage

# Text is printed verbatim: names and paths may contain brackets, which rich would read as markup.
VERBATIM: Any = {"highlight": False, "markup": False, "emoji": False}
# When output is not a terminal, rich would cut tables to 80 columns; COLUMNS overrides the width.
out = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 160, **VERBATIM)
err = Console(stderr=True, **VERBATIM)

LINE_EVERY_SECONDS = 30.0  # of progress, where there is no live bar


def say(text: str, style: str = "") -> None:
    """Print a line without wrapping it, because commands are copied."""
    out.print(text, soft_wrap=True, style=style)


def note(text: str) -> None:
    """Print a line without wrapping it on standard error."""
    err.print(text, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print strict JSON: infinities and NaN, as of a model that diverged, become null."""
    print(json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False))


def print_written(*files: Path | tuple[Path, str], as_json: bool = False) -> None:
    """Print where the output was written (on standard error next to JSON); a path may come with a remark."""
    lines = [str(file) if isinstance(file, Path) else f"{file[0]} ({file[1]})" for file in files]
    text = "Written to" + (f" {lines[0]}" if len(lines) == 1 else ":" + "".join(f"\n  {line}" for line in lines))
    (note if as_json else say)(text)


def print_table(table: Table) -> None:
    """Print a table whose cells, where too wide for the screen, continue on the next line (rich would cut them)."""
    for column in table.columns:
        column.overflow = "fold"
    out.print(table)


@contextlib.contextmanager
def progress() -> Iterator[OnStage]:
    """Show the progress of the block's stages: bars with the time left on a terminal, a line now and then elsewhere."""
    if not err.is_terminal:
        yield _line_printer()
        return
    from rich.markup import escape
    from rich.progress import Progress, TimeElapsedColumn

    with Progress(*Progress.get_default_columns(), TimeElapsedColumn(), console=err, transient=True) as bars:
        current = ""

        def on_stage(stage: str, done: int, total: int | None) -> None:
            nonlocal current
            if stage != current:  # one bar at a time, each with its own clock
                current = stage
                for task in bars.task_ids:
                    bars.remove_task(task)
                bars.add_task(escape(stage), total=total)
            bars.update(bars.task_ids[0], completed=done, total=total)

        yield on_stage


def _line_printer() -> OnStage:
    """Return a callback that prints a line every `LINE_EVERY_SECONDS`, and stages of unknown length once."""
    current = ""
    started = 0.0
    printed = 0.0

    def on_stage(stage: str, done: int, total: int | None) -> None:
        nonlocal current, started, printed
        now = time.perf_counter()
        if stage != current or done == 0:  # a search repeats the same stage for each of its points
            if total is None:
                note(stage)
            current = stage
            started = now
            printed = now
        elif total and done < total and now - printed >= LINE_EVERY_SECONDS:
            printed = now
            note(f"{stage}: {done / total:.0%}, about {(now - started) * (total - done) / done:,.0f} s left")

    return on_stage


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
