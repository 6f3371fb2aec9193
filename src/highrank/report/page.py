"""HTML pages from Jinja2 templates: one self-contained file each, without scripts, light or dark as the reader prefers.

`templates/base.html` is the frame of every page. Autoescape is on: values are text, and only the templates contain
markup.
"""

import base64
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **values: Any) -> str:
    """Render a file of `templates/` with the given values."""
    return environment().get_template(template).render(**values)


def embed_svg(file: Path) -> str:
    """Return an SVG file as a `data:` URI, so that a page needs no other file."""
    return f"data:image/svg+xml;base64,{base64.b64encode(file.read_bytes()).decode()}"


@cache
def environment() -> "Environment":
    """Return the Jinja2 environment of `templates/`."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("highrank.report")
    return Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
