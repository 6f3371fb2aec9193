"""Display of a search for settings: a line per point while it runs, and a table of all points at the end."""

import dataclasses
import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from highrank.cli.console import note, print_table, say

if TYPE_CHECKING:
    from highrank.evaluation.tune import Tuned, Tuning
    from highrank.recipes.recipe import DynamicSettings


def format_settings(settings: Any) -> str:
    """Format settings as "lr 0.002, lambda 0.075, epsilon 0.001"."""
    return ", ".join(f"{_option(name)} {getattr(settings, name):g}" for name in _knobs(settings))


def print_point(settings: "DynamicSettings", nll: float, count: int) -> None:
    """Print one point of a search on standard error."""
    note(f"point {count}: {format_settings(settings)}: valid {_format_loss(nll)}")


def print_points(tuned: "Tuned[Any]") -> None:
    """Print every point, best first. For the cache, a row is a window and a theta with the best of its lambdas."""
    names = _knobs(tuned.best)
    table = Table(*(_option(name) for name in names), "valid perplexity")
    rows = set()
    for settings, nll in tuned.points:
        row = (settings.window, settings.theta) if hasattr(settings, "window") else settings
        if row not in rows:
            rows.add(row)
            table.add_row(*(f"{getattr(settings, name):g}" for name in names), _format_loss(nll))
    print_table(table)
    remark = "" if len(rows) == len(tuned.points) else ", each row with its best lambda"
    say(f"{len(tuned.points)} points on {tuned.tokens:,} tokens of valid{remark}; best: {format_settings(tuned.best)}")


def print_edges(tuning: "Tuning", run: Path, data_dir: Path | None) -> None:
    """Print the best settings that lie at an edge of the values tried, and a command that searches beyond."""
    if not tuning.at_edge:
        return
    best = dataclasses.asdict(tuning.best)
    words = ["highrank", "evaluate", str(run), "--cache" if "window" in best else "--dynamic", "--tune"]
    for name, value in best.items():
        if name != "stats_batch_size":
            words += [f"--{_option(name)}", str(value)]
    words += ["--tune-tokens", str(tuning.tokens)]
    if data_dir is not None:
        words += ["--data-dir", str(data_dir)]
    edges = ", ".join(f"{_option(name)} {best[name]} ({which})" for name, which in tuning.at_edge.items())
    say(f"At an edge of the values tried: {edges}. To search beyond, run:\n  {shlex.join(words)}")


def _knobs(settings: Any) -> list[str]:
    """List the settings that a search changes."""
    fixed = ("segment", "stats_batch_size")
    return [field.name for field in dataclasses.fields(settings) if field.name not in fixed]


def _option(name: str) -> str:
    return "lambda" if name == "lamb" else name


def _format_loss(nll: float) -> str:
    from highrank.evaluation.perplexity import format_perplexity, perplexity

    return format_perplexity(perplexity(nll), 3) if math.isfinite(nll) else "diverged"
