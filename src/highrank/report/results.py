"""Tables that compare the paper's numbers with ours, and say where each of ours comes from."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from highrank.report.table import Cell, Column, Table, keep_together

NOT_RUN = Cell(keep_together("not run"))


@dataclass(frozen=True)
class Origin:
    """The record that a number of ours comes from, and how it was produced."""

    record: str  # path relative to the results folder
    commit: str | None
    machine: str
    seed: int | None = None
    epochs: int | None = None
    seconds: float | None = None  # of training
    processes: int = 1  # one per GPU
    about: str | None = None  # settings that differ from the recipe, number of pieces, ...

    def training(self) -> str:
        """Return the amount of training: 125 epochs, 9.1 min of one H200; in 2 pieces."""
        epochs = keep_together(f"{self.epochs} epoch{'' if self.epochs == 1 else 's'}")
        minutes = keep_together(f"{(self.seconds or 0) / 60:.1f} min")
        return f"{epochs}, {minutes} of {self.processes if self.processes > 1 else 'one'} {self.machine}" + (
            f"; {self.about}" if self.about else ""
        )


@dataclass(frozen=True)
class Quantity:
    """The quantity of a column, and how it is printed."""

    name: str
    parts: tuple[str, ...] = ("",)  # names of the numbers in each cell
    digits: int = 2
    unit: str = ""
    in_paper: bool = True  # whether the paper prints this quantity

    def format(self, values: Sequence[float], digits: int | None = None) -> str:
        """Return the numbers of a cell: 58.08 / 55.97."""
        digits = self.digits if digits is None else digits
        return keep_together(" / ".join(f"{value:,.{digits}f}{self.unit}" for value in values))


PERPLEXITY = Quantity("valid / test", ("valid", "test"))


@dataclass(frozen=True)
class Result:
    """The paper's numbers and ours, one per part of the quantity."""

    paper: tuple[float, ...] | None = None
    ours: tuple[float, ...] | None = None
    origin: Origin | None = None  # of ours
    lower_bound: bool = False  # the true value may be larger than ours
    error: float | None = None  # the standard error of ours
    paper_digits: int | None = None  # if the paper prints another number of digits than the column

    def our_cell(self, quantity: Quantity) -> Cell:
        """Return our numbers, linked to their record."""
        if self.ours is None or self.origin is None:
            return NOT_RUN if self.paper or not quantity.in_paper else Cell("-")
        bound = "≥ " if self.lower_bound else ""
        error = "" if self.error is None else f" ± {self.error:.{quantity.digits}f}"
        return Cell(keep_together(bound + quantity.format(self.ours) + error), record=self.origin.record)

    def training(self) -> Cell:
        """Return the amount of training behind our numbers."""
        return Cell(self.origin.training() if self.origin else "")


@dataclass(frozen=True)
class ResultTable:
    """A table of the paper, or one like it, with our results."""

    label: str  # heading of the first column
    quantities: Sequence[Quantity]
    rows: Sequence[tuple[Cell, Sequence[Result]]]  # heading, and one result per quantity
    show_training: bool = False  # add a column with the training behind the first quantity
    transposed: bool = False  # one column per row: for few rows with many quantities

    def entries(self, name: str) -> list[dict[str, Any]]:
        """Return one entry per number, for --json; `name` is that of the table."""
        return [
            {
                "table": name,
                "row": label.code + label.text,
                "column": quantity.name,
                "part": part or None,
                "paper": result.paper[i] if result.paper else None,
                "ours": result.ours[i] if result.ours else None,
                "error": result.error,
                **(asdict(result.origin) if result.origin else {field.name: None for field in fields(Origin)}),
            }
            for label, results in self.rows
            for quantity, result in zip(self.quantities, results, strict=True)
            for i, part in enumerate(quantity.parts)
            if result.paper or result.ours
        ]

    def table(self) -> Table:
        """Return the table as text."""
        columns = [Column(self.label, "left")]
        for quantity in self.quantities:
            names = [f"{quantity.name}: paper", "ours"] if quantity.in_paper else [quantity.name]
            columns += [Column(name) for name in names]
        if self.show_training:
            columns.append(Column("trained for", "left"))
        rows = []
        for label, results in self.rows:
            cells = [label]
            for quantity, result in zip(self.quantities, results, strict=True):
                if quantity.in_paper:
                    cells.append(Cell(quantity.format(result.paper, result.paper_digits) if result.paper else "-"))
                cells.append(result.our_cell(quantity))
            if self.show_training:
                cells.append(results[0].training())
            rows.append(cells)
        table = Table(columns, rows)
        return table.transpose() if self.transposed else table
