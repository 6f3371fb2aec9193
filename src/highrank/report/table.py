"""A table of text cells, rendered to Markdown here and to HTML by `templates/table.html`.

    table = Table([Column("recipe", "left"), Column("test")], [[Cell(Code("ptb-mos")), Cell("57.05", strong=True)]])
    print(to_markdown(table))

Cells hold plain text; each renderer escapes it, so a name may contain any character.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

NO_BREAK_SPACE = "\u00a0"
MARKDOWN_CHARACTERS = re.compile(r"([\\`*_{}\[\]<>|#~$&])")


class Code(str):
    """A piece of text that is shown in a fixed-width font, such as the name of a recipe."""


Text = str | tuple[str, ...]  # plain text, or several pieces of which some are `Code`


@dataclass(frozen=True)
class Cell:
    """The text of one cell, and how it is shown."""

    text: Text = ""
    link: str = ""  # a path, not yet percent-encoded
    strong: bool = False
    style: str = ""  # CSS class of the cell, ignored in Markdown


@dataclass(frozen=True)
class Column:
    """The heading of a column and the alignment of its cells."""

    name: str
    align: Literal["left", "right"] = "right"


@dataclass(frozen=True)
class Table:
    """Columns, and rows with one cell per column. The first cell of a row is its heading."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]


def to_markdown(table: Table) -> str:
    """Render a table in GitHub's Markdown."""
    head = [escape_markdown(column.name) for column in table.columns]
    rules = ["---:" if column.align == "right" else "---" for column in table.columns]
    lines = [head, rules, *([_cell(cell) for cell in row] for row in table.rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def text_to_markdown(text: Text) -> str:
    """Render text, with its `Code` pieces in backticks."""
    return "".join(_code(piece) if isinstance(piece, Code) else escape_markdown(piece) for piece in pieces(text))


def escape_markdown(text: str) -> str:
    """Put a backslash before every character that has a meaning in Markdown."""
    return MARKDOWN_CHARACTERS.sub(r"\\\1", text.replace("\n", " "))


def pieces(text: Text) -> tuple[str, ...]:
    """Return the pieces of a text; a plain string is one piece."""
    return (text,) if isinstance(text, str) else text


def encode_link(path: str) -> str:
    """Percent-encode a path for Markdown and HTML; it may contain spaces and brackets."""
    return quote(path, safe="/")


def keep_together(text: str) -> str:
    """Replace spaces by no-break spaces, so that a narrow column does not split "58.08 / 55.97" over two lines."""
    return text.replace(" ", NO_BREAK_SPACE)


def _cell(cell: Cell) -> str:
    text = text_to_markdown(cell.text)
    if cell.strong:
        text = f"**{text}**"
    return f"[{text}]({encode_link(cell.link)})" if cell.link else text


def _code(text: str) -> str:
    # Backticks cannot hold a backtick, nor a table's cell a bar.
    return escape_markdown(text) if "`" in text or "|" in text else f"`{text}`"
