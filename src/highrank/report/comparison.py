"""A comparison of two models as files: a self-contained page (HTML), JSON and a figure.

The sentences are in `comparison_text.py`, the layout in `templates/comparison.html`.
"""

import dataclasses
from pathlib import Path
from typing import Any

from highrank.analysis.compare import Comparison
from highrank.data.catalog import EOS
from highrank.files import write_json, write_text
from highrank.plotting import save_figure
from highrank.report import comparison_text
from highrank.report.figures.comparison import plot_gains
from highrank.report.page import embed_svg, render


def write_comparison(comparison: Comparison, folder: Path, origin: dict[str, Any]) -> list[Path]:
    """Write all forms of a comparison and return the files. `origin` tells where the numbers come from."""
    html, json, png, svg = (folder / f"comparison.{suffix}" for suffix in ("html", "json", "png", "svg"))
    save_figure(plot_gains(comparison), [png, svg])
    write_text(html, render_comparison(comparison, embed_svg(svg)))
    write_json(json, comparison_json(comparison) | origin)
    return [html, json, png, svg]


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Return everything, as plain lists and dicts."""
    data = dataclasses.asdict(comparison)
    data["a"]["perplexity"] = comparison.a.perplexity
    data["b"]["perplexity"] = comparison.b.perplexity
    return data


def comparison_numbers(comparison: Comparison) -> dict[str, Any]:
    """Return the numbers without any quotation of the text, for corpora that may not be redistributed.

    The phrase of `contains` is the only text among them: it says which steps were counted.
    """
    data = comparison_json(comparison)
    keys = ("corpus", "split", "contains", "tokens", "a", "b", "overall", "a_better", "by_frequency", "by_pair")
    cases = comparison.paper_cases
    gains = [{"number": case.paper.number, "gain": case.step.gain if case.step else None} for case in cases or []]
    return {key: data[key] for key in keys} | {"paper_cases": None if cases is None else gains}


def render_comparison(c: Comparison, figure: str) -> str:
    """Render the page of a comparison; `figure` is the URI of the figure."""
    return render("comparison.html", c=c, title=comparison_text.title(c), figure=figure, EOS=EOS, say=comparison_text)
