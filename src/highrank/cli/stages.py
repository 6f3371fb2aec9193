"""Progress of work in stages: bars with the time left on a terminal, a line now and then anywhere else."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from rich.progress import TaskID

PLAIN_LINE_EVERY_SECONDS = 20.0


@contextlib.contextmanager
def stage_progress(console: Console) -> Iterator[Callable[[str, int, int | None], None]]:
    """`tell(stage, done, total)`; a total of None is a step whose end cannot be foretold: its time so far is shown."""
    if not console.is_terminal:
        yield _lines(console)
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[share]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def tell(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                for task in tasks.values():
                    bars.update(task, visible=False)
                tasks[stage] = bars.add_task(stage, share="", total=total)
            share = f"{done / total:4.0%}" if total else "one step"
            bars.update(tasks[stage], completed=done, total=total, share=share)

        yield tell


def _lines(console: Console) -> Callable[[str, int, int | None], None]:
    stage_now, began, said = "", 0.0, 0.0

    def tell(stage: str, done: int, total: int | None) -> None:
        nonlocal stage_now, began, said
        now = time.perf_counter()
        new = stage != stage_now
        if new:
            stage_now, began = stage, now
        if not new and now - said < PLAIN_LINE_EVERY_SECONDS:
            return
        said = now
        left = ""
        if total and done and not new:
            left = f", {done / total:.0%}, about {(now - began) / done * (total - done):.0f} s left"
        console.print(f"  {stage}{left}", highlight=False, soft_wrap=True)

    return tell
