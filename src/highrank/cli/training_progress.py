"""The progress of training: a live bar on a terminal, plain lines elsewhere."""

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from highrank.cli.console import LINE_EVERY_SECONDS
from highrank.data.catalog import Level
from highrank.evaluation.score import format_perplexity, format_score, perplexity
from highrank.training.callbacks import Callbacks, EpochMetrics, UpdateMetrics

ESTIMATE_SECONDS = 3.0  # of training, before the time of an epoch is estimated
LONG_UPDATE_SECONDS = 10.0
SLOW_EPOCH_SECONDS = 15 * 60.0


@contextlib.contextmanager
def show_training(
    console: Console, max_epochs: int | None, time_budget: float | None, level: Level = "word", on_cpu: bool = False
) -> Iterator[Callbacks]:
    """Yield callbacks that show the progress of training on `console` during the block.

    With `on_cpu`, epochs that will take long come with a warning.
    """
    options = (console, max_epochs, time_budget, level, on_cpu)
    if not console.is_terminal:
        yield _Lines(*options)
        return
    # A narrow screen has no room for a bar beside the times.
    wide: list[ProgressColumn] = [BarColumn(bar_width=None), MofNCompleteColumn()]
    narrow: list[ProgressColumn] = [TextColumn("{task.percentage:3.0f}%")]
    columns = [
        TextColumn("epoch {task.fields[epoch]}"),
        *(wide if console.width >= 80 else narrow),
        TextColumn("{task.fields[speed]} tok/s {task.fields[score]} left"),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[run_left]}"),
    ]
    with Progress(*columns, console=console, refresh_per_second=4) as bars:
        yield _Bar(bars, *options)


@dataclass
class _Lines(Callbacks):
    """Prints one line per epoch, and one every `LINE_EVERY_SECONDS` within it."""

    console: Console
    max_epochs: int | None
    time_budget: float | None
    level: Level
    on_cpu: bool

    def __post_init__(self) -> None:
        self.loss = math.nan  # the mean of the epoch so far, in nats
        self._start = time.perf_counter()
        self._first_epoch: float | None = None  # epochs before this start; a resumed run may start within an epoch
        self._epoch = 0
        self._rows = 0
        self._tokens = 0
        self._epoch_start = self._start
        self._last_line = self._start
        self._estimated = False
        self._epoch_row = 0  # where this epoch started
        self._measured_from: tuple[float, int] | None = None  # time and row from which the estimate counts

    def epoch_started(self, epoch: int, rows: int, row: int) -> None:
        self._epoch = epoch
        self._rows = max(1, rows)
        self._tokens = 0
        self._epoch_start = time.perf_counter()
        self._epoch_row = row
        if self._first_epoch is None:
            self._first_epoch = self._epochs_done(row)

    def update_done(self, metrics: UpdateMetrics) -> None:
        self._tokens = metrics.tokens
        self.loss = metrics.epoch_nll
        if not self._estimated:
            self._estimate(metrics.row)
        self.show(metrics.row)

    def _estimate(self, row: int) -> None:
        """Print how long an epoch takes, without its first update, which may compile kernels or capture a graph.

        A CPU does neither: a first update that takes very long is counted there, to warn as early as possible.
        """
        now = time.perf_counter()
        if self._measured_from is None:
            long = self.on_cpu and now - self._epoch_start > LONG_UPDATE_SECONDS
            self._measured_from = (self._epoch_start, self._epoch_row) if long else (now, row)
        start, first_row = self._measured_from
        if now - start < ESTIMATE_SECONDS:
            return
        self._estimated = True
        seconds = (now - start) * self._rows / (row - first_row)
        self.message(f"one epoch takes about {_duration(seconds)}")
        if self.on_cpu and seconds > SLOW_EPOCH_SECONDS:
            self.message(
                "This is long for a CPU: Ctrl-C stops and saves. Use a GPU, a smaller recipe (small-...), "
                "less text or a smaller vocabulary."
            )

    def epoch_done(self, metrics: EpochMetrics) -> None:
        self._estimated = True  # the time in this line is better than an estimate
        self.message(epoch_line(metrics, self.level))
        self._last_line = time.perf_counter()

    def message(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)

    def show(self, row: int) -> None:
        """Print a line if the last one is old."""
        if time.perf_counter() - self._last_line < LINE_EVERY_SECONDS:
            return
        self._last_line = time.perf_counter()
        left = self.run_left(row)
        self.message(
            f"  epoch {self._epoch}: {row / self._rows:4.0%}, {self.speed()} tok/s, loss {self.loss:.3f}, "
            f"{self.score()}" + (f", about {left} left in total" if left else "")
        )

    def score(self) -> str:
        """Return the training loss as perplexity or bits per character."""
        ppl = perplexity(self.loss)
        return format_score(ppl, "char") if self.level == "char" else f"ppl {format_perplexity(ppl, 1)}"

    def speed(self) -> str:
        """Return the tokens per second of this epoch."""
        return _thousands(self._tokens / max(time.perf_counter() - self._epoch_start, 1e-9))

    def run_left(self, row: int) -> str:
        """Return the time until the run pauses, or an empty string if there is no limit or no estimate yet."""
        elapsed = time.perf_counter() - self._start
        limits = []
        if self.time_budget is not None:
            limits.append(self.time_budget - elapsed)
        if self.max_epochs is not None and self._first_epoch is not None:
            done = self._epochs_done(row)
            if done - self._first_epoch > 0.02:
                limits.append(elapsed / (done - self._first_epoch) * (self.max_epochs - done))
        return _duration(min(limits)) if limits else ""

    def _epochs_done(self, row: int) -> float:
        return self._epoch - 1 + row / self._rows


class _Bar(_Lines):
    """Shows the current epoch as a live bar, and prints one line per completed epoch above it."""

    def __init__(self, bars: Progress, *options: Any) -> None:
        super().__init__(*options)
        self._bars = bars
        self._task: TaskID | None = None

    def epoch_started(self, epoch: int, rows: int, row: int) -> None:
        super().epoch_started(epoch, rows, row)
        if self._task is not None:
            self._bars.remove_task(self._task)
        self._task = self._bars.add_task("", total=rows, completed=row, epoch=epoch, speed="-", score="", run_left="")

    def show(self, row: int) -> None:
        """Update the bar."""
        assert self._task is not None
        left = self.run_left(row)
        self._bars.update(
            self._task,
            completed=row,
            speed=self.speed(),
            score=self.score(),
            run_left=f"(run {left})" if left else "",
        )


def epoch_line(metrics: EpochMetrics, level: Level = "word") -> str:
    """Return the result of an epoch in 80 columns; the time is that of the whole run.

    epoch  80 averaged: train  45.31, valid  69.50, 171k tok/s, 18m24s, best 69.44
    epoch  80 averaged: train  1.352, valid  1.412 bpc, 850k tok/s, 18m24s, best 1.410    characters
    """
    train, valid, best = (
        format_score(ppl, level, unit=False) for ppl in (metrics.train_ppl, metrics.valid_ppl, metrics.best_valid_ppl)
    )
    kind = metrics.stage
    if metrics.stage == "train":
        kind = "averaged" if metrics.averaged else ""
    best = "new best" if metrics.best_epoch == metrics.epoch else f"best {best}"
    skipped = f", {metrics.skipped} windows skipped" if metrics.skipped else ""
    return (
        f"epoch {metrics.epoch:>3}{' ' if kind else ''}{kind}: train {train:>6}, valid {valid:>6}"
        f"{' bpc' if level == 'char' else ''}, {_thousands(metrics.tokens_per_second):>4} tok/s, "
        f"{_duration(metrics.seconds):>6}, {best}{skipped}"
    )


def _thousands(count: float) -> str:
    """Format a count as 840, 2.3k or 171k."""
    if count < 999.5:
        return f"{count:.0f}"
    return f"{count / 1000:.1f}k" if count < 9950 else f"{count / 1000:.0f}k"


def _duration(seconds: float) -> str:
    """Format a time as 45s, 18m10s or 1h05m."""
    total = max(0, round(seconds))
    if total >= 3600:
        return f"{total // 3600}h{total // 60 % 60:02}m"
    return f"{total // 60}m{total % 60:02}s" if total >= 60 else f"{total}s"
