"""`highrank theory`: the finite-language laboratory."""

import re
from pathlib import Path
from typing import Annotated

import typer

from highrank.cli.console import out
from highrank.errors import UserError


def theory(
    contexts: Annotated[int, typer.Option(metavar="N", help="How many contexts the language has.")] = 64,
    words: Annotated[int, typer.Option(metavar="M", help="How many words.")] = 32,
    rank: Annotated[
        int | None, typer.Option(help="Rank of A = log P*. Default: half of the smaller of contexts and words.")
    ] = None,
    dims: Annotated[
        str, typer.Option(help="The D to fit, such as 1,2,4 or 1-16. Default: a dozen around the rank.")
    ] = "",
    components: Annotated[int, typer.Option(metavar="K", help="Components of MoC and MoS.")] = 4,
    bias: Annotated[
        bool, typer.Option("--bias", help="Give every head an output bias; the paper's have none.")
    ] = False,
    unigram: Annotated[
        bool, typer.Option("--unigram", help="A language in which all contexts share word frequencies.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer D and fewer, shorter fits.")] = False,
    output: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Folder for the report, the table and the figures.")
    ] = Path("theory"),
) -> None:
    """Check the paper's theory on a language we know, and see how near each head can come to it for each D.

    A minute or two on a CPU. Ends with code 1 if a check fails. docs/theory.md explains every line.
    """
    from highrank.analysis.finite_language import Setup
    from highrank.analysis.finite_language import theory as run_theory
    from highrank.files import output_folder

    output_folder(output)
    setup = Setup(contexts, words, rank, parse_dims(dims), components, bias, unigram, seed, quick)
    checks = run_theory(setup, output, out)
    if any(check.holds is False for check in checks):
        raise typer.Exit(1)


def parse_dims(text: str) -> tuple[int, ...]:
    """'1,2,4-8' -> 1, 2, 4, 5, 6, 7, 8."""
    found: list[int] = []
    for part in text.split(",") if text else ():
        match = re.fullmatch(r"\s*(-?\d{1,6})(?:-(\d{1,6}))?\s*", part)
        if not match or (match[2] and int(match[2]) < int(match[1])):
            raise UserError(f'--dims "{text}" is not a list of sizes: write for example 1,2,4 or 1-16.')
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(found)
