"""Options that several commands share, and the conversion of their values."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from highrank.cli.console import out
from highrank.errors import UserError

if TYPE_CHECKING:
    import torch
    from rich.table import Table

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
