"""Options that several commands share, and the conversion of their values."""

import re
from pathlib import Path
from typing import Annotated

import typer

from highrank.errors import UserError

RECORDS = Path("records")  # where 'highrank record' writes and 'highrank report' reads

DataDir = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder of the corpus, or of several corpora. Default: $HIGHRANK_DATA, or the user's cache if unset.",
    ),
]
Device = Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda or cuda:N.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, as made by 'highrank train'.")]


def complete_recipe(incomplete: str) -> list[str]:
    """Return the recipes whose names begin like this, for the shell's completion."""
    from highrank.recipes import ALL_RECIPES

    return [name for name in ALL_RECIPES if name.startswith(incomplete)]


def parse_seconds(text: str) -> float:
    """Convert '90', '90s', '25m' or '1.5h' to seconds."""
    seconds = _parse_amount(text, {"": 1, "s": 1, "m": 60, "h": 3600})
    if seconds <= 0:
        raise UserError(f'"{text}" is not a time: write for example 90s, 25m or 2h.')
    return seconds


def parse_bytes(text: str) -> int:
    """Convert '512kB', '15MB' or '1GB' to bytes."""
    size = int(_parse_amount(text, {"kb": 10**3, "mb": 10**6, "gb": 10**9}))
    if size < 10**5:
        raise UserError(f'"{text}" is not a size of at least 100kB: write for example 15MB.')
    return size


def _parse_amount(text: str, units: dict[str, int]) -> float:
    """Return a number followed by one of the units, in the smallest unit; 0 for any other text."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d*)?|\.\d+)([a-z]*)", text.lower())
    return float(match[1]) * units.get(match[2], 0) if match else 0
