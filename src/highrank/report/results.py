"""A table of the report: rows of cells that hold the paper's numbers and ours, with where each comes from.

A cell may hold several numbers (valid / test), named by its column's parts. `flat` turns a table into one entry a
number, for `highrank report --json`; `markdown` into text.
"""

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

NOT_RUN = "not run"
NO_BREAK = "\u00a0"
FOLDS = re.compile(
    r"(?<=[\dx]) (?=[/±x] \d)|(?<= [/±x]) (?=\d)|(?<=\d) (?=(?:ms|MiB|min|h|epochs|pieces)\b)|(?<=≥) |(?<=not) (?=run)"
)


@dataclass(frozen=True)
class Origin:
    """Where a number of ours comes from."""

    path: str  # in results/
    commit: str | None
    machine: str
    seed: int | None = None
    epochs: int | None = None
    seconds: float | None = None  # of training
    about: str = ""  # settings that differ from the recipe's, and the like
    adapted: dict[str, Any] | None = None  # of a model that adapts as it reads: where that was done, and for how long


@dataclass(frozen=True)
class Column:
    name: str
    parts: tuple[str, ...] = ("",)
    digits: int = 2
    unit: str = ""
    paper: bool = True  # whether the paper prints such numbers
    less_is_better: bool = True


VALID_TEST = ("valid", "test")


@dataclass(frozen=True)
class Cell:
    paper: tuple[float, ...] | None = None
    ours: tuple[float, ...] | None = None
    origin: Origin | None = None
    source: str = ""  # of the paper's numbers
    applies: bool = True  # False: neither the paper nor we have such a cell
    least: bool = False  # ours is a lower bound
    error: float | None = None  # standard error of ours, where it is one number
    paper_digits: int | None = None  # where the paper prints fewer than the column


@dataclass(frozen=True)
class Row:
    label: str
    cells: tuple[Cell, ...]
    about: str = ""


@dataclass(frozen=True)
class Table:
    name: str  # of its markers in a README, and of its anchor
    title: str
    about: str
    label: str  # the first column's heading
    columns: tuple[Column, ...]
    rows: list[Row]
    about_column: str = ""  # the last column's heading; none without one
    tables: tuple[int, ...] = ()  # of the paper

    def missing(self) -> list[str]:
        """What the table would hold and nobody has run."""
        return [
            f"{self.label + ' = ' if row.label.isdigit() else ''}{row.label}"
            + (f": {column.name}" if len(self.columns) > 1 else "")
            for row in self.rows
            for column, cell in zip(self.columns, row.cells, strict=True)
            if cell.applies and cell.ours is None
        ]


def printed(cell: Cell, column: Column) -> str:
    """The paper's numbers: 58.08 / 55.97"""
    digits = column.digits if cell.paper_digits is None else cell.paper_digits
    return _numbers(cell.paper or (), digits, column.unit) or "-"


def ours(cell: Cell, column: Column) -> str:
    """Ours in the same form, or why there are none."""
    if cell.ours is None:
        return NOT_RUN if cell.applies else "-"
    error = "" if cell.error is None else f" ± {cell.error:.{column.digits}f}"
    return ("≥ " if cell.least else "") + _numbers(cell.ours, column.digits, column.unit) + error


def as_good(cell: Cell, column: Column) -> bool:
    """Whether ours is at least as good as the paper's, in all that the cell holds."""
    if not column.less_is_better or cell.ours is None or cell.paper is None:
        return False
    return all(mine <= theirs for mine, theirs in zip(cell.ours, cell.paper, strict=True))


def _numbers(values: tuple[float, ...], digits: int, unit: str) -> str:
    return " / ".join(f"{value:,.{digits}f}{unit}" for value in values)


def address(link: str, path: str) -> str:
    """Where a link leads, in Markdown and HTML: a name may hold spaces and brackets."""
    return quote(f"{link}/{path}", safe="/&")


def markdown(table: Table, link: str) -> str:
    """The table in Markdown; our numbers link to their records below the folder `link`."""
    head = [table.label]
    for column in table.columns:
        name = column.name
        head += [f"{name}: paper", "ours"] if column.paper else [name]
    head += [table.about_column] if table.about_column else []
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in table.rows:
        line = [row.label]
        for column, cell in zip(table.columns, row.cells, strict=True):
            line += [printed(cell, column)] if column.paper else []
            text = ours(cell, column)
            line.append(f"[**{text}**]({address(link, cell.origin.path)})" if cell.origin else text)
        line += [row.about] if table.about_column else []
        lines.append(f"| {' | '.join(line)} |")
    return "\n".join(lines)


def unbroken(text: str) -> str:
    """Markdown whose tables fold no number: in a page's narrow columns, 58.08 / 55.97 would take two lines.

    The spaces on either side of a sign between numbers, and between a number and its unit, are non-breaking ones.
    """
    lines = (FOLDS.sub(NO_BREAK, line) if line.startswith("|") else line for line in text.split("\n"))
    return "\n".join(lines)


def flat(table: Table) -> list[dict[str, Any]]:
    """One entry a number: table, row, column, paper, ours, and where ours comes from."""
    return [
        {
            "table": table.name,
            "row": row.label.replace("`", ""),
            "column": column.name,
            "part": part or None,
            "paper": cell.paper[i] if cell.paper else None,
            "source": cell.source or None,
            "ours": cell.ours[i] if cell.ours else None,
            "error": cell.error,
            **_origin(cell.origin),
        }
        for row in table.rows
        for column, cell in zip(table.columns, row.cells, strict=True)
        for i, part in enumerate(column.parts)
        if cell.applies
    ]


def _origin(origin: Origin | None) -> dict[str, Any]:
    if origin is None:
        return dict.fromkeys(("record", "seed", "commit", "epochs", "seconds", "machine", "about", "adapted"))
    return {
        "record": origin.path,
        "seed": origin.seed,
        "commit": origin.commit,
        "epochs": origin.epochs,
        "seconds": origin.seconds,
        "machine": origin.machine,
        "about": origin.about or None,
        "adapted": origin.adapted,
    }
