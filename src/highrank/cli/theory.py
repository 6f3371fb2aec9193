"""`highrank theory`: the paper's theory, checked on a finite language."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from highrank.cli.console import out, print_written, progress, say
from highrank.errors import UserError

if TYPE_CHECKING:
    from highrank.analysis.finite_language import TheoryReport
    from highrank.analysis.finite_language.sweep import Point

HEADINGS = ("D", "head", "KL found", "KL by construction", "bound", "rank of log Q", "rank allowed", "parameters")


def theory(
    contexts: Annotated[int, typer.Option(metavar="N", min=2, help="Contexts of the language.")] = 64,
    words: Annotated[int, typer.Option(metavar="M", min=2, help="Words of the language.")] = 32,
    rank: Annotated[
        int | None, typer.Option(min=2, help="Rank of A = log P*. Default: half of the smaller of contexts and words.")
    ] = None,
    dims: Annotated[
        str, typer.Option(help="The D to fit, such as 1,2,4 or 1-16. Default: a dozen around the rank.")
    ] = "",
    components: Annotated[int, typer.Option(metavar="K", min=2, help="Components of MoC and MoS.")] = 4,
    bias: Annotated[
        bool, typer.Option("--bias", help="Give every head an output bias; the paper's have none.")
    ] = False,
    unigram: Annotated[
        bool, typer.Option("--unigram", help="Use a language in which all contexts share word frequencies.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of the language and the starts.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Fit fewer D, with fewer and shorter fits.")] = False,
    output: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Folder for the report and the figures.")
    ] = Path("theory"),
) -> None:
    """Check the paper's theory on a known language, and see how close each head comes to it for each D.

    Takes about half a minute on a CPU. Ends with code 1 if a check fails. docs/theory.md explains every line.
    """
    from functools import partial

    import torch

    from highrank.analysis.finite_language import Setup, check_theory
    from highrank.files import output_folder, write_json
    from highrank.plotting import save_figure
    from highrank.report.figures.finite_language import draw_kl, draw_rank
    from highrank.runs.provenance import provenance
    from highrank.schema import to_json

    setup = Setup(contexts, words, rank, parse_dims(dims), components, bias, unigram, seed, quick)
    output_folder(output)
    with progress() as on_stage:
        report = check_theory(setup, partial(on_stage, "fitting Softmax, MoC and MoS"))
    write_json(output / "report.json", {**to_json(report), "provenance": provenance(torch.device("cpu"))})
    figures = [
        *save_figure(draw_kl(report), [output / "kl.png", output / "kl.svg"], dpi=120),
        *save_figure(draw_rank(report), [output / "rank.png", output / "rank.svg"], dpi=120),
    ]
    _print_report(report)
    print_written(output / "report.json", *figures)
    if any(check.holds is False for check in report.checks):
        raise typer.Exit(1)


def parse_dims(text: str) -> tuple[int, ...]:
    """Convert "1,2,4-8" to 1, 2, 4, 5, 6, 7, 8."""
    dims: list[int] = []
    for part in text.split(",") if text else ():
        match = re.fullmatch(r"\s*(\d{1,6})(?:-(\d{1,6}))?\s*", part)
        sizes = range(int(match[1]), int(match[2] or match[1]) + 1) if match else ()
        if not sizes:
            raise UserError(f'--dims "{text}" is not a list of sizes: write for example 1,2,4 or 1-16.')
        dims += sizes
    return tuple(dims)


def _row(point: "Point") -> tuple[str, ...]:
    fit = point.found
    exact = point.constructed
    bound = point.lower_bound
    return (
        str(fit.embed_dim),
        fit.name,
        f"{fit.kl:.2e}",
        "-" if exact is None else "0" if abs(exact.kl) < 1e-9 else f"{exact.kl:.0e}",
        "-" if bound is None else f"{bound:.1e}" if bound else "0",
        str(fit.rank),
        "any" if fit.rank_bound is None else str(fit.rank_bound),
        f"{fit.parameters:,}",
    )


def _print_report(report: "TheoryReport") -> None:
    from rich.table import Table
    from rich.text import Text

    setup = report.setup
    softmax = report.enough_for_softmax
    mos = min(softmax, report.enough_for_mos_of_any_rank)
    with_bias = " with an output bias" if setup.bias else ""
    say(
        f"A language of {setup.contexts} contexts and {setup.words} words. A = log P* has rank {report.ranks.a}; the "
        f"lowest rank in F(A) is {report.ranks.lowest}.\n"
        f"A Softmax or MoC{with_bias} needs D >= {softmax}; for a MoS-{setup.components}, D >= {mos} is enough.\n"
    )
    for check in report.checks:
        mark = {True: ("holds", "green"), False: ("FAILS", "red"), None: ("not shown", "yellow")}[check.holds]
        text = Text.assemble(mark, " ", (check.name, "bold"), f". {check.statement}\n        {check.found}")
        out.print(text, soft_wrap=True)
    table = Table(*HEADINGS)
    for point in report.points:
        table.add_row(*_row(point), end_section=point.head == "mos")
    out.print(table)
    failed = sum(check.holds is False for check in report.checks)
    not_shown = sum(check.holds is None for check in report.checks)
    say(
        "KL found: the best of several starts of L-BFGS, an upper bound on the attainable KL. By construction: in "
        "closed form. Bound: proven, for every Softmax and MoC of this D.\n"
        f"{len(report.checks) - failed - not_shown} of {len(report.checks)} checks hold, {failed} fail, {not_shown} "
        f"cannot be shown at these sizes ({report.seconds:.0f} s)."
    )
