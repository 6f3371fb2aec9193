"""A table of text cells, rendered to Markdown here and to HTML by `templates/table.html`.

    table = Table([Column("recipe", "left"), Column("test")], [[Cell(code="ptb-mos"), Cell("57.05")]])
    print(to_markdown(table))

Cells hold plain text; each renderer escapes it, so a name may contain any character.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

MARKDOWN_CHARACTERS = re.compile(r"([\\`*_{}\[\]<>|#~$&])")


@dataclass(frozen=True)
class Cell:
    """The text of one cell."""

    text: str = ""
    code: str = ""  # comes before the text, in a fixed-width font
    record: str = ""  # the file in the folder of records that the text is linked to


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
    caption: str = ""

    def transpose(self) -> "Table":
        """Return the table with its columns as rows."""
        corner, *columns = self.columns
        heads = [Column(row[0].code + row[0].text) for row in self.rows]
        rows = [
            [Cell(column.name), *cells] for column, *cells in zip(columns, *(row[1:] for row in self.rows), strict=True)
        ]
        return Table([corner, *heads], rows, self.caption)

    @property
    def has_records(self) -> bool:
        """Whether any cell is a result with a record."""
        return any(cell.record for row in self.rows for cell in row)


def to_markdown(table: Table, results: str = "results") -> str:
    """Render a table and its caption in GitHub's Markdown; `results` is the path of the folder with the records."""
    head = [escape_markdown(column.name) for column in table.columns]
    rules = ["---:" if column.align == "right" else "---" for column in table.columns]
    lines = [head, rules, *([_cell(cell, results) for cell in row] for row in table.rows)]
    caption = f"{escape_markdown(table.caption)}\n\n" if table.caption else ""
    return caption + "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(cell: Cell, results: str) -> str:
    text = (code_to_markdown(cell.code) if cell.code else "") + escape_markdown(cell.text)
    return f"[**{text}**]({quote(f'{results}/{cell.record}')})" if cell.record else text


def escape_markdown(text: str) -> str:
    """Put a backslash before every character that has a meaning in Markdown."""
    return MARKDOWN_CHARACTERS.sub(r"\\\1", text.replace("\n", " "))


def code_to_markdown(text: str) -> str:
    """Put text in backticks, unless it contains a backtick itself or a bar, which would end a table's cell."""
    return escape_markdown(text) if "`" in text or "|" in text else f"`{text}`"


def keep_together(text: str) -> str:
    """Replace spaces by no-break spaces, so that a narrow column does not split "58.08 / 55.97" over two lines."""
    return text.replace(" ", "\u00a0")
