"""A comparison of two models as files: a page that needs nothing else (HTML), Markdown, JSON and a figure."""

import dataclasses
from pathlib import Path
from typing import Any

from highrank.analysis.compare import Comparison
from highrank.files import write_json, write_text


def write(comparison: Comparison, folder: Path, origin: dict[str, Any]) -> list[Path]:
    """All forms of a comparison; returns the files, the page first. `origin` says where the numbers come from."""
    from highrank.report.comparison.markdown import markdown
    from highrank.report.comparison.page import page
    from highrank.report.figures.comparison import draw

    html, md, json, png, svg = (folder / f"comparison.{ending}" for ending in ("html", "md", "json", "png", "svg"))
    write_text(html, page(comparison))
    write_text(md, markdown(comparison, figure=png.name))
    write_json(json, as_json(comparison) | origin)
    draw([png, svg], comparison)
    return [html, md, json, png, svg]


def as_json(comparison: Comparison) -> dict[str, Any]:
    found = dataclasses.asdict(comparison)
    for side in ("a", "b"):
        found[side]["perplexity"] = getattr(comparison, side).perplexity
    return found


def numbers_json(comparison: Comparison) -> dict[str, Any]:
    """What may be shared where the corpus may not: no step, no word before, of the paper's cases the gains alone."""
    found = as_json(comparison)
    kept = ("corpus", "split", "tokens", "a", "b", "overall", "a_better", "by_frequency", "by_pair")
    cases = comparison.paper_cases
    gains = [{"number": x.paper.number, "gain": x.step.gain if x.step else None} for x in cases or []]
    return {key: found[key] for key in kept} | {"paper_cases": None if cases is None else gains}
