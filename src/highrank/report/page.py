"""HTML pages from Jinja2 templates: one self-contained file each, without scripts, light or dark as the reader prefers.

`templates/base.html` is the frame of every page. Autoescape is on: values are text, and only the templates contain
markup.
"""

import base64
from pathlib import Path
from typing import Any


def render(template: str, **values: Any) -> str:
    """Render a file of `templates/` with the given values."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("highrank.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    return environment.get_template(template).render(**values)


def embed_svg(file: Path) -> str:
    """Return an SVG file as a `data:` URI, so that a page needs no other file."""
    return f"data:image/svg+xml;base64,{base64.b64encode(file.read_bytes()).decode()}"
