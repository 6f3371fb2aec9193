"""How a search for settings is shown: a line a point while it runs, and a table of all of them at the end."""

import dataclasses
import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from highrank.cli.console import err, out, say
from highrank.folded import folded

if TYPE_CHECKING:
    from highrank.evaluation.tune import Tuned
    from highrank.recipes.recipe import DynamicSettings

NAMES = {"lr": "lr", "lamb": "lambda", "epsilon": "epsilon", "window": "window", "theta": "theta"}


def say_point(settings: "DynamicSettings", nll: float, count: int) -> None:
    err.print(f"point {count}: {_line(settings)}: valid {_ppl(nll)}")


def show_points(tuned: "Tuned[Any]") -> None:
    """Best first. The cache tries hundreds: a row for each window and theta, with the best of their lambdas."""
    names = _knobs(tuned.best)
    table = Table(*(NAMES[name] for name in names), "valid perplexity")
    seen = set()
    for settings, nll in tuned.points:
        group = (settings.window, settings.theta) if hasattr(settings, "window") else settings
        if group not in seen:
            seen.add(group)
            table.add_row(*(f"{getattr(settings, name):g}" for name in names), _ppl(nll))
    out.print(folded(table))
    more = "" if len(seen) == len(tuned.points) else ", each row with its best lambda"
    say(f"{len(tuned.points)} points tried on {tuned.tokens:,} tokens of valid{more}; best: {_line(tuned.best)}")


def say_edges(found: dict[str, Any], run: Path, data_dir: Path | None) -> None:
    """Which of the best settings lie at an edge of what was tried (`Tuned.as_json`), and how to look beyond: on the
    same text."""
    if not found["at_edge"]:
        return
    best = {NAMES.get(key, key): str(value) for key, value in found["best"].items() if key in (*NAMES, "segment")}
    said = {"smallest": "the smallest", "largest": "the largest", "only": "the only one"}
    edges = ", ".join(f"{NAMES[knob]} {best[NAMES[knob]]} ({said[which]})" for knob, which in found["at_edge"].items())
    given = best | {"tune-tokens": str(found["tokens"])} | ({"data-dir": str(data_dir)} if data_dir else {})
    words = ["highrank", "evaluate", str(run), "--cache" if "window" in best else "--dynamic", "--tune"]
    words += [word for name, value in given.items() for word in (f"--{name}", value)]
    say(
        f"At an edge of what was tried: {edges}. Better settings may lie beyond; search on from there with:\n"
        f"  {shlex.join(words)}"
    )


def _line(settings: Any) -> str:
    return ", ".join(f"{NAMES[name]} {getattr(settings, name):g}" for name in _knobs(settings))


def _knobs(settings: Any) -> list[str]:
    """What is searched, in the order of the settings."""
    return [field.name for field in dataclasses.fields(settings) if field.name in NAMES]


def _ppl(nll: float) -> str:
    from highrank.evaluation.perplexity import perplexity, shown

    return shown(perplexity(nll), 3) if math.isfinite(nll) else "diverged"
