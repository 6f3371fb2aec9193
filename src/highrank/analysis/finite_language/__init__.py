"""`highrank theory`: section 2 of the paper on a finite language whose every probability is known.

`bounds` is the algebra, `checks` puts each statement to the numbers, `sweep` fits Softmax, MoC and MoS over D in the
`laboratory` that the quickstart uses too. docs/theory.md walks through it.
"""

import dataclasses
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from highrank.analysis.finite_language.bounds import Ranks, mos_enough, ranks
from highrank.analysis.finite_language.checks import ROUND_OFF, Check, algebra, fitted
from highrank.analysis.finite_language.laboratory import Kind
from highrank.analysis.finite_language.setup import SCALE, Setup
from highrank.analysis.finite_language.sweep import FULL, NAMES, QUICK, Point, sweep
from highrank.data.synthetic import FiniteLanguage
from highrank.files import write_json, write_text
from highrank.folded import folded
from highrank.report.figures.finite_language import draw
from highrank.runs.provenance import provenance

PLAIN_LINE_EVERY_SECONDS = 10.0


def theory(setup: Setup, folder: Path, out: Console) -> list[Check]:
    """Check, sweep, print, and write report.json, table.md and the figures into `folder`."""
    began = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)  # a place that cannot be written to is better known now
    language = setup.language()
    found = ranks(language)
    out.print(_introduction(setup, found))
    checks = algebra(language, found, setup.components, setup.bias, setup.seed)
    for check in checks:
        _print_check(out, check)
    out.print(f"\n[bold]Fitting[/] Softmax, MoC and MoS at D = {', '.join(map(str, setup.swept))}:", soft_wrap=True)
    points = _watched_sweep(setup, language, out)
    more = fitted(language, found, points, setup.bias)
    for check in more:
        _print_check(out, check)
    checks += more
    rows = _rows(points)
    out.print()
    out.print(folded(_table(rows)))
    out.print(
        "   found: the best of several starts of L-BFGS, an upper bound on what is attainable; by construction: "
        "written down\n   in closed form, 0 to round-off; bound: proven, no Softmax or MoC of that D goes below.\n"
    )
    title = (
        f"{setup.contexts} contexts, {setup.words} words, rank(A) = {found.a}, K = {setup.components}"
        f"{', output bias' if setup.bias else ''}{', shared word frequencies' if setup.unigram else ''}"
        f", seed {setup.seed}"
    )
    figures = draw(folder, points, found, setup.bias, title)
    write_text(folder / "table.md", _markdown(rows))
    seconds = time.perf_counter() - began
    write_json(folder / "report.json", _report(setup, language, found, checks, points, seconds))
    failed = sum(check.holds is False for check in checks)
    open_ = sum(check.holds is None for check in checks)
    verdict = (
        f"{failed} of {len(checks)} checks failed" if failed else f"{len(checks) - open_} of {len(checks)} checks hold"
    )
    out.print(f"{verdict}{f', {open_} cannot be shown at these sizes' if open_ else ''}. Done in {seconds:.0f} s.")
    out.print(_written(folder / "report.json", folder / "table.md", *figures), soft_wrap=True, markup=False)
    return checks


def _introduction(setup: Setup, found: Ranks) -> str:
    bias = " with an output bias" if setup.bias else ""
    return (
        f"[bold]A language[/] of {setup.contexts} contexts and {setup.words} words. The matrix A = log P* has rank "
        f"{found.a}, measured; the lowest rank in F(A) is {found.lowest}.\n"
        f"A Softmax or MoC{bias} needs D >= {found.enough(setup.bias)} to say it; for a MoS-{setup.components}, "
        f"D >= {min(found.enough(setup.bias), mos_enough(setup.words, setup.components))} is enough.\n\n[bold]Checks[/]"
    )


def _print_check(out: Console, check: Check) -> None:
    mark = {True: "[green]holds[/]", False: "[red]FAILS[/]", None: "[yellow]not shown[/]"}[check.holds]
    out.print(f"{mark} [bold]{check.name}[/]. {check.statement}", soft_wrap=True)
    for label in ("computed", "expected", "found"):
        out.print(f"        {label + ':':9} {getattr(check, label)}", soft_wrap=True, markup=False)


def _watched_sweep(setup: Setup, language: FiniteLanguage, out: Console) -> list[Point]:
    """The sweep with a bar on a terminal and a line now and then elsewhere, both with the time left."""
    began = said = time.perf_counter()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as bar:
        task = bar.add_task("fitting", total=1.0)

        def progress(d: int, kind: Kind, share: float) -> None:
            nonlocal said
            bar.update(task, completed=share, description=f"D = {d:>2}, {NAMES[kind]:7}")
            now = time.perf_counter()
            if not out.is_terminal and share > 0.03 and now - said > PLAIN_LINE_EVERY_SECONDS:
                said = now
                left = (now - began) * (1 - share) / share
                out.print(f"   D = {d}, {NAMES[kind]}: {share:.0%} done, about {left:.0f} s left")

        effort = QUICK if setup.quick else FULL
        return sweep(language, setup.swept, setup.components, setup.bias, setup.seed, effort, progress)


HEADINGS = ("D", "head", "KL found", "KL by construction", "bound", "rank of log Q", "rank allowed", "parameters")


def _rows(points: list[Point]) -> list[tuple[str, ...]]:
    return [
        (
            str(p.fit.embed_dim),
            p.fit.name,
            f"{p.fit.kl:.2e}",
            "-" if p.constructed is None else "0" if abs(p.constructed.kl) < ROUND_OFF else f"{p.constructed.kl:.0e}",
            "-" if p.floor is None else f"{p.floor:.1e}" if p.floor else "0",
            str(p.fit.rank),
            "any" if p.fit.rank_bound is None else str(p.fit.rank_bound),
            f"{p.fit.parameters:,}",
        )
        for p in points
    ]


def _table(rows: list[tuple[str, ...]]) -> Table:
    table = Table(*HEADINGS)
    for i, row in enumerate(rows):
        table.add_row(*row, end_section=i % len(NAMES) == len(NAMES) - 1)
    return table


def _markdown(rows: list[tuple[str, ...]]) -> str:
    lines = [HEADINGS, ("---",) * len(HEADINGS), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _report(
    setup: Setup, language: FiniteLanguage, found: Ranks, checks: list[Check], points: list[Point], seconds: float
) -> dict[str, Any]:
    return {
        "setup": {**dataclasses.asdict(setup), "rank": setup.true_rank, "dims": setup.swept, "scale": SCALE},
        "effort": dataclasses.asdict(QUICK if setup.quick else FULL),
        "seconds": seconds,
        "provenance": provenance(torch.device("cpu")),
        "entropy": language.entropy,
        "ranks": {
            **dataclasses.asdict(found),
            "enough_for_softmax": found.enough(setup.bias),
            "enough_for_mos_of_any_rank": mos_enough(setup.words, setup.components),
        },
        "checks": [dataclasses.asdict(check) for check in checks],
        "points": [
            {
                "head": p.kind,
                "lower_bound": p.floor,
                "kl_attainable_at_most": p.attainable,
                "found": dataclasses.asdict(p.fit),
                "constructed": None if p.constructed is None else dataclasses.asdict(p.constructed),
            }
            for p in points
        ],
    }


def _written(*files: Path) -> str:
    return "Written to:" + "".join(f"\n  {file}" for file in files)
