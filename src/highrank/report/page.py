"""HTML pages from Jinja2 templates: one self-contained file each, without scripts, light or dark as the reader prefers.

`templates/base.html` is the frame of every page, `templates/table.html` holds the macros for text, tables and figures.
Autoescape is on: values are text, and only the templates contain markup.
"""

import base64
from functools import cache
from typing import TYPE_CHECKING, Any

from highrank.report.table import Code, encode_link, pieces

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **values: Any) -> str:
    """Render a file of `templates/` with the given values."""
    return environment().get_template(template).render(**values)


def data_uri(image: bytes, media_type: str) -> str:
    """Return an image as a `data:` URI, so that a page needs no other file."""
    return f"data:{media_type};base64,{base64.b64encode(image).decode()}"


@cache
def environment() -> "Environment":
    """Return the Jinja2 environment of `templates/`, with the filters and tests that table.html needs."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("highrank.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["pieces"] = pieces
    environment.filters["encode_link"] = encode_link
    environment.tests["code"] = lambda piece: isinstance(piece, Code)
    return environment
