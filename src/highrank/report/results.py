"""Tables that compare the paper's numbers with ours, and say where each of ours comes from.

A cell may hold several numbers (valid / test), which its column names. `ResultTable.entries` returns one entry per
number, for `highrank report --json`; `ResultTable.section` returns the table as text, for documents and pages.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from highrank.report.table import Cell, Column, Table, Text, keep_together, pieces

NOT_RUN = keep_together("not run")


@dataclass(frozen=True)
class Origin:
    """The record that a number of ours comes from, and how it was produced."""

    record: str  # path relative to the results folder
    commit: str | None
    machine: str
    seed: int | None = None
    epochs: int | None = None
    seconds: float | None = None  # of training
    about: str | None = None  # settings that differ from the recipe, number of pieces, ...
    adapted: dict[str, Any] | None = None  # the evaluation with a cache or with dynamic evaluation: where, how long

    def training(self) -> str:
        """Return the amount of training: 125 epochs, 9.1 min of one H200; in 2 pieces."""
        if self.seconds is None:
            return ""
        epochs = keep_together(f"{self.epochs} epochs")
        minutes = keep_together(f"{self.seconds / 60:.1f} min")
        return f"{epochs}, {minutes} of one {self.machine}" + (f"; {self.about}" if self.about else "")


NO_ORIGIN = {field.name: None for field in fields(Origin)}


@dataclass(frozen=True)
class Quantity:
    """A column: the quantity that its cells hold, and how it is printed."""

    name: str
    parts: tuple[str, ...] = ("",)  # names of the numbers in each cell
    digits: int = 2
    unit: str = ""
    in_paper: bool = True  # whether the paper prints this quantity
    less_is_better: bool = True

    def format(self, values: Sequence[float], digits: int | None = None) -> str:
        """Return the numbers of a cell: 58.08 / 55.97."""
        digits = self.digits if digits is None else digits
        return keep_together(" / ".join(f"{value:,.{digits}f}{self.unit}" for value in values))


PERPLEXITY = Quantity("valid / test", ("valid", "test"))


@dataclass(frozen=True)
class Result:
    """A cell: the paper's numbers and ours."""

    paper: Sequence[float] | None = None
    ours: Sequence[float] | None = None
    origin: Origin | None = None  # of ours
    source: str = ""  # of the paper's
    applies: bool = True  # False: neither the paper nor we measure this
    lower_bound: bool = False  # the true value may be larger than ours
    error: float | None = None  # the standard error of ours
    paper_digits: int | None = None  # if the paper prints another number of digits than the column

    def is_as_good(self, quantity: Quantity) -> bool:
        """Return whether all our numbers are at least as good as the paper's."""
        if not quantity.less_is_better or self.ours is None or self.paper is None:
            return False
        return all(ours <= paper for ours, paper in zip(self.ours, self.paper, strict=True))


@dataclass(frozen=True)
class Section:
    """A table with its title and explanation."""

    name: str  # of its markers in a document and of its anchor in a page
    title: str
    table: Table
    about: Text = ""  # explains the table in a page
    caption: Text = ""  # facts from the records, without which the table means little: shown in documents too


@dataclass(frozen=True)
class Row:
    """A row of a ResultTable."""

    label: Text
    results: tuple[Result, ...]
    remark: str = ""


@dataclass(frozen=True)
class ResultTable:
    """A table of the paper, or one like it, with our results."""

    name: str
    title: str
    about: Text
    label: str  # heading of the first column
    quantities: tuple[Quantity, ...]
    rows: list[Row]
    remarks: str = ""  # heading of the last column, if the rows have remarks
    paper_tables: tuple[int, ...] = ()

    def entries(self) -> list[dict[str, Any]]:
        """Return one entry per number: its table, row and column, the paper's value, ours, and our record."""
        return [
            {
                "table": self.name,
                "row": "".join(pieces(row.label)),
                "column": quantity.name,
                "part": part or None,
                "paper": result.paper[i] if result.paper else None,
                "source": result.source or None,
                "ours": result.ours[i] if result.ours else None,
                "error": result.error,
                **(asdict(result.origin) if result.origin else NO_ORIGIN),
            }
            for row in self.rows
            for quantity, result in zip(self.quantities, row.results, strict=True)
            for i, part in enumerate(quantity.parts)
            if result.applies
        ]

    def section(self, link: str) -> Section:
        """Return the table as text; our numbers link to their records in the folder `link`."""
        columns = [Column(self.label, "left")]
        for quantity in self.quantities:
            names = [f"{quantity.name}: paper", "ours"] if quantity.in_paper else [quantity.name]
            columns += [Column(name) for name in names]
        if self.remarks:
            columns.append(Column(self.remarks, "left"))
        rows = []
        for row in self.rows:
            cells = [Cell(row.label)]
            for quantity, result in zip(self.quantities, row.results, strict=True):
                if quantity.in_paper:
                    numbers = quantity.format(result.paper, result.paper_digits) if result.paper else "-"
                    cells.append(Cell(numbers, style="paper"))
                cells.append(_our_cell(result, quantity, link))
            if self.remarks:
                cells.append(Cell(row.remark))
            rows.append(cells)
        about = (*pieces(self.about), *(f" The paper's table {number}." for number in self.paper_tables))
        return Section(self.name, self.title, Table(columns, rows), about)


def _our_cell(result: Result, quantity: Quantity, link: str) -> Cell:
    if result.ours is None or result.origin is None:
        return Cell(NOT_RUN if result.applies else "-", style="none")
    text = quantity.format(result.ours)
    if result.lower_bound:
        text = keep_together("≥ ") + text
    if result.error is not None:
        text += keep_together(f" ± {result.error:.{quantity.digits}f}")
    style = "good" if result.is_as_good(quantity) else ""
    return Cell(text, f"{link}/{result.origin.record}", strong=True, style=style)
