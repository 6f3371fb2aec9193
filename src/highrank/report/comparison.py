"""A comparison of two models as files: a self-contained page (HTML), Markdown, JSON and a figure.

The sentences are in `comparison_text.py`, the layout in `templates/comparison.html` and `templates/comparison.md`.
"""

import dataclasses
from pathlib import Path
from typing import Any

from highrank.analysis.compare import Comparison
from highrank.analysis.context import join_tokens
from highrank.analysis.groups import Group
from highrank.data.corpus import EOS
from highrank.files import write_json, write_text
from highrank.plotting import save_figure
from highrank.report import comparison_text as text
from highrank.report.figures.comparison import plot_gains
from highrank.report.page import render
from highrank.report.table import Cell, Code, Column, Table, escape_markdown, text_to_markdown, to_markdown


def write_comparison(comparison: Comparison, folder: Path, origin: dict[str, Any]) -> list[Path]:
    """Write all forms of a comparison and return the files. `origin` tells where the numbers come from."""
    html, md, json, png, svg = (folder / f"comparison.{suffix}" for suffix in ("html", "md", "json", "png", "svg"))
    write_text(html, comparison_page(comparison))
    write_text(md, comparison_markdown(comparison, figure=png.name))
    write_json(json, comparison_json(comparison) | origin)
    save_figure(plot_gains(comparison), [png, svg])
    return [html, md, json, png, svg]


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Return everything, as plain lists and dicts."""
    data = dataclasses.asdict(comparison)
    data["a"]["perplexity"] = comparison.a.perplexity
    data["b"]["perplexity"] = comparison.b.perplexity
    return data


def comparison_numbers(comparison: Comparison) -> dict[str, Any]:
    """Return the numbers without any quotation of the text, for corpora that may not be redistributed."""
    data = comparison_json(comparison)
    keys = ("corpus", "split", "tokens", "a", "b", "overall", "a_better", "by_frequency", "by_pair")
    cases = comparison.paper_cases
    gains = [{"number": case.paper.number, "gain": case.step.gain if case.step else None} for case in cases or []]
    return {key: data[key] for key in keys} | {"paper_cases": None if cases is None else gains}


def comparison_page(c: Comparison) -> str:
    """Render a comparison as an HTML page that needs no script, font or network."""
    return render("comparison.html", title=text.title(c), **_template_values(c), interval=_interval)


def comparison_markdown(c: Comparison, figure: str) -> str:
    """Render a comparison as Markdown; `figure` is the path of the figure in the same folder."""
    values = _template_values(c) | {
        "figure": figure,
        "md": escape_markdown,
        "code": lambda word: text_to_markdown(Code(word)),
        "group_table": lambda grouping: to_markdown(_group_table(c, grouping)),
    }
    return render("comparison.md", title=text.title(c), **values)


def _template_values(c: Comparison) -> dict[str, Any]:
    return {"c": c, "say": text, "EOS": EOS, "join_tokens": join_tokens}


def _group_table(c: Comparison, grouping: text.Grouping) -> Table:
    columns = [Column("", "left"), Column("steps"), Column(c.a.name), Column(c.b.name), Column("gain")]
    rows = []
    for g in grouping.groups:
        name = Code(text.visible(g.name)) if grouping.of_words else g.name
        cells = (name, f"{g.steps:,}", f"{g.nll_a:.3f}", f"{g.nll_b:.3f}", text.format_gain(g))
        rows.append([Cell(cell) for cell in cells])
    return Table(columns, rows)


def _interval(group: Group, groups: list[Group]) -> dict[str, float]:
    """Return x positions (0 to 100) of zero, the gain and its interval of two standard errors."""
    ends = [g.gain + sign * 2 * (g.gain_se or 0.0) for g in groups for sign in (-1, 1)]
    low, high = min(0.0, *ends), max(0.0, *ends)
    reach = 2 * (group.gain_se or 0.0)
    positions = {"zero": 0.0, "gain": group.gain, "low": group.gain - reach, "high": group.gain + reach}
    return {name: round(3 + 94 * (x - low) / (high - low or 1.0), 1) for name, x in positions.items()}
