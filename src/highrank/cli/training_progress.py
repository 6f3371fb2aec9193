"""What a person sees while a model trains: a live bar on a terminal, plain lines anywhere else."""

import contextlib
import math
import time
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from highrank.evaluation.perplexity import perplexity, shown
from highrank.training.callbacks import Listener

PLAIN_LINE_EVERY_SECONDS = 30.0


@contextlib.contextmanager
def watch(console: Console, max_epochs: int | None, time_budget: float | None) -> Iterator[Listener]:
    """A listener for `train` that draws on `console` for as long as the block runs."""
    if not console.is_terminal:
        yield _Lines(console, max_epochs, time_budget)
        return
    wide = console.width >= 80  # a narrow screen has no room for a bar beside the times
    columns = (
        TextColumn("epoch {task.fields[epoch]}"),
        *((BarColumn(bar_width=None), MofNCompleteColumn()) if wide else (TextColumn("{task.percentage:3.0f}%"),)),
        TextColumn("{task.fields[speed]} tok/s ppl {task.fields[ppl]} left"),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=console, refresh_per_second=4) as bars:
        yield _Bar(console, max_epochs, time_budget, bars)


class _Lines(Listener):
    """An epoch a line, and a sign of life in between."""

    def __init__(self, console: Console, max_epochs: int | None, time_budget: float | None) -> None:
        self.console, self.max_epochs, self.time_budget = console, max_epochs, time_budget
        self.start = time.perf_counter()
        self.first: float | None = None  # epochs before this start, and the share of one that a resumed run had begun
        self.epoch = self.rows = 0
        self.loss = math.nan  # smoothed over about fifty windows
        self._window_start = time.perf_counter()
        self._tokens = 0
        self._said = time.perf_counter()

    def epoch_started(self, epoch: int, rows: int, row: int) -> None:
        if self.first is None:
            self.first = epoch - 1 + row / max(1, rows)
        self.epoch, self.rows = epoch, rows
        self._window_start, self._tokens = time.perf_counter(), 0

    def window_done(self, row: int, tokens: int, loss: float) -> None:
        self._tokens = tokens
        if math.isfinite(loss):
            self.loss = loss if math.isnan(self.loss) else 0.98 * self.loss + 0.02 * loss
        self.show(row)

    def show(self, row: int) -> None:
        if time.perf_counter() - self._said >= PLAIN_LINE_EVERY_SECONDS:
            self._said = time.perf_counter()
            share, speed = row / max(1, self.rows), self.speed()
            text = f"  epoch {self.epoch}: {share:4.0%}, {speed} tok/s, loss {self.loss:.3f}"
            left = f", about {left} left in all" if (left := self.left(row)) else ""
            self.console.print(f"{text}, ppl {shown(perplexity(self.loss), 1)}{left}", highlight=False, soft_wrap=True)

    def speed(self) -> str:
        return _thousands(self._tokens / max(time.perf_counter() - self._window_start, 1e-9))

    def left(self, row: int) -> str:
        """How long the whole run may still take, where that can be known."""
        elapsed = time.perf_counter() - self.start
        seconds = []
        if self.time_budget is not None:
            seconds.append(self.time_budget - elapsed)
        if self.max_epochs is not None and self.first is not None:
            so_far = self.epoch - 1 + row / max(1, self.rows)
            if (done := so_far - self.first) > 0.02:
                seconds.append(elapsed / done * (self.max_epochs - so_far))
        return _duration(min(seconds)) if seconds else ""

    def epoch_done(self, record: dict[str, Any]) -> None:
        self.console.print(epoch_line(record), highlight=False, soft_wrap=True)  # one line of a log, whatever it holds
        self._said = time.perf_counter()

    def message(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)


def epoch_line(record: dict[str, Any]) -> str:
    """What an epoch came to, in 80 columns; the time is that of the whole run so far.

    epoch  80 averaged: train  45.31, valid  69.50, 171k tok/s, 18m24s, best 69.44
    """
    kind = "averaged" if record["averaged"] else ""
    kind = kind if record["stage"] == "train" else record["stage"]  # finetuning always averages
    speed, taken = _thousands(record["tokens_per_second"]), _duration(record["seconds"])
    best = "new best" if record["best_epoch"] == record["epoch"] else f"best {shown(record['best_valid_ppl'])}"
    skipped = f", {record['skipped']} windows skipped" if record["skipped"] else ""
    return (
        f"epoch {record['epoch']:>3}{' ' * bool(kind)}{kind}: train {shown(record['train_ppl']):>6}, "
        f"valid {shown(record['valid_ppl']):>6}, {speed:>4} tok/s, {taken:>6}, {best}{skipped}"
    )


class _Bar(_Lines):
    def __init__(self, console: Console, max_epochs: int | None, time_budget: float | None, bars: Progress) -> None:
        super().__init__(console, max_epochs, time_budget)
        self.bars = bars
        self.task: TaskID | None = None

    def epoch_started(self, epoch: int, rows: int, row: int) -> None:
        super().epoch_started(epoch, rows, row)
        if self.task is not None:
            self.bars.remove_task(self.task)
        self.task = self.bars.add_task("", total=rows, completed=row, epoch=epoch, speed="-", ppl="-", left="")

    def show(self, row: int) -> None:
        assert self.task is not None
        left = f"({left} in all)" if (left := self.left(row)) else ""
        self.bars.update(self.task, completed=row, speed=self.speed(), ppl=shown(perplexity(self.loss), 1), left=left)


def _thousands(count: float) -> str:
    """840, 2.3k, 171k"""
    return f"{count:.0f}" if count < 999.5 else f"{count / 1000:.1f}k" if count < 9950 else f"{count / 1000:.0f}k"


def _duration(seconds: float) -> str:
    """45s, 18m10s, 1h05m: as --time-budget takes each unit."""
    seconds = max(0, round(seconds))
    hours, minutes, seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{seconds:02}s" if minutes else f"{seconds}s"
