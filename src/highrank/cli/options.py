"""What the verbs share: options, the console, and small conversions."""

import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from highrank.errors import UserError

if TYPE_CHECKING:
    import torch
    from rich.table import Table

# Off a terminal nothing needs to fit a screen, unless COLUMNS asks for it; rich would cut tables to 80 columns.
out = Console(highlight=False, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 160)
err = Console(highlight=False, stderr=True)  # progress and remarks: standard output is for results

LINE_EVERY_SECONDS = 30.0
Tell = Callable[[int, int | None], object]  # done, of how many

DataDir = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder of the corpus, or of corpora. Default: $HIGHRANK_DATA, then the user's cache folder.",
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, as made by 'highrank train'.")]


def find_device(name: str) -> "torch.device":
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f'there is no device "{name}": choose auto, cpu, cuda or cuda:N.') from None
    if device.type not in ("cpu", "cuda"):
        raise UserError(f'the device "{name}" is not supported: choose auto, cpu, cuda or cuda:N.')
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cuda" and (device.index or 0) >= found:
        raise UserError(f'the device "{name}" is not available here ({found} CUDA devices found): use --device cpu.')
    return device


@contextlib.contextmanager
def watching() -> Iterator[Callable[[str], Tell]]:
    """Progress on the error stream: the block's value is called with what starts, and what it gives with (done, total).

    A bar with the time left on a terminal; anywhere else a line now and then. A total of None is a single step, whose
    end cannot be foretold: that it goes on is all there is to show.
    """
    from rich.markup import escape
    from rich.progress import Progress, TimeElapsedColumn

    if not err.is_terminal:
        yield _Lines
        return
    with Progress(*Progress.get_default_columns(), TimeElapsedColumn(), console=err, transient=True) as bars:

        def watch(what: str) -> Tell:
            for done_before in bars.task_ids:
                bars.update(done_before, visible=False)
            task = bars.add_task(escape(what), total=None)
            return lambda done, total: bars.update(task, completed=done, total=total)

        yield watch


@contextlib.contextmanager
def watching_stages() -> Iterator[Callable[[str, int, int | None], None]]:
    """`watching` for work that names its stages itself: (what, done, total)."""
    with watching() as watch:
        tellers: dict[str, Tell] = {}

        def tell(what: str, done: int, total: int | None) -> None:
            if what not in tellers:
                tellers[what] = watch(what)
            tellers[what](done, total)

        yield tell


class _Lines:
    """What goes on, told twice a minute."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.began = self.said = time.perf_counter()

    def __call__(self, done: int, total: int | None) -> None:
        if total is None:
            remark(self.what)
            return
        now = time.perf_counter()
        if 0 < done < total and now - self.said >= LINE_EVERY_SECONDS:
            self.said = now
            left = (now - self.began) * (total - done) / done
            remark(f"{self.what}: {done / total:.0%}, about {left:,.0f} s left")
        if done == total:
            self.began = now  # a search starts again with its next point


def parse_seconds(text: str) -> float:
    """'90', '90s', '25m', '1.5h' -> seconds."""
    unit = {"s": 1, "m": 60, "h": 3600}.get(text[-1:].lower())
    try:
        seconds = float(text[:-1] if unit else text) * (unit or 1)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise UserError(f'"{text}" is not a time: write for example 90s, 25m or 2h.')
    return seconds


def parse_bytes(text: str) -> int:
    """'15MB', '512kB', '1GB' -> bytes."""
    units = {"kb": 10**3, "mb": 10**6, "gb": 10**9}
    try:
        size = int(float(text[:-2]) * units[text[-2:].lower()])
    except (KeyError, ValueError, OverflowError):
        size = 0
    if size < 10**5:
        raise UserError(f'"{text}" is not a size of at least 100kB: write for example 15MB.')
    return size


def plain(value: Any) -> str:
    """A value of a recipe, as --set takes it."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def natural_width(table: "Table") -> int:
    """How wide it is where there is room enough."""
    return out.measure(table, options=out.options.update_width(1000)).maximum


def print_fitting(table: "Table", left: int) -> None:
    """`table` with what its columns hold, below itself where it is too wide: its first `left` columns come again."""
    from rich.table import Table

    first, rest = table.columns[:left], [c for c in table.columns[left:] if {*c.cells} - {"", "-"}]

    def part(count: int) -> Table:
        made = Table(title_justify="left")
        columns = [*first, *rest[:count]]
        for column in columns:
            made.add_column(column.header, justify=column.justify, no_wrap=column.no_wrap)
        for cells in zip(*(column.cells for column in columns), strict=True):
            made.add_row(*cells)
        return made

    title = table.title
    while title or rest:
        count = len(rest)
        while count > 1 and natural_width(part(count)) > out.width:
            count -= 1
        fits = part(count)
        fits.title, title = title, None
        out.print(fits)
        rest = rest[count:]


def say(text: str, style: str = "") -> None:
    """Words as they are: a folder's name may hold brackets, and a command to copy is not folded."""
    out.print(text, soft_wrap=True, markup=False, style=style)


def remark(text: str) -> None:
    """`say` on the error stream."""
    err.print(text, soft_wrap=True, markup=False)


def say_written(*files: "Path | tuple[Path, str]", as_json: bool = False) -> None:
    """Where the output is, beside the results: on the error stream where JSON goes to standard output."""
    from highrank.files import written

    (err if as_json else out).print(written(*files), soft_wrap=True, markup=False)


def print_json(value: Any) -> None:
    """For other programs to read: JSON has no infinite numbers, as of a model that diverged, so they are null."""
    print(json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
