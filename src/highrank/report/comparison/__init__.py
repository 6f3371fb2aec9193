"""A comparison of two models as files: a page that needs nothing else (HTML), Markdown, JSON and a figure."""

import dataclasses
from pathlib import Path
from typing import Any

from highrank.analysis.compare import Comparison
from highrank.files import write_json, write_text


def write(comparison: Comparison, folder: Path, origin: dict[str, Any]) -> list[Path]:
    """All forms of a comparison; returns the files, the page first. `origin` says where the numbers come from."""
    from highrank.report.comparison.figure import draw
    from highrank.report.comparison.markdown import markdown
    from highrank.report.comparison.page import page

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
