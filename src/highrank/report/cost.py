"""The tables of cost: the loss beside its peers, whole training steps, and the paper's table 13 of slowdowns."""

import csv
from dataclasses import replace
from pathlib import Path

from highrank.report import paper
from highrank.report.records import short_machine_name
from highrank.report.results import NOT_RUN, Origin, Quantity, Result, ResultTable
from highrank.report.table import Cell, Column, Table, keep_together

PAPER_COLUMNS = ("PTB/bs", "PTB/best-1", "WT2/bs", "WT2/best-1", "1B/bs")
STEPS = "benchmarks/step_h200.csv"
Row = dict[str, str]  # of a CSV file


def cost_tables(results: Path) -> dict[str, Table]:
    """Return a table for each benchmark that was run: the loss on a GPU and on a CPU, and training steps."""
    tables = {}
    for name, file in (("cost", "mos_nll_h200.csv"), ("cost-cpu", "mos_nll_cpu.csv")):
        if rows := _read(results / "benchmarks" / file):
            tables[name] = _loss_table(rows)
    if steps := _step_rows(results):
        tables["steps"] = _step_table([row for row in steps if not row["recipe"].endswith("-best")])
    return tables


def _read(path: Path) -> list[Row]:
    """Return the rows of a CSV file that have a time; none if there is no such file."""
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row.get("median_ms")]


def _loss_table(rows: list[Row]) -> Table:
    shapes = {row["size"]: "{}: N={N} K={K} D={D} V={V}".format(row["size"].upper(), **row) for row in rows}
    cells = {(row["implementation"], row["size"]): _loss_cell(row) for row in rows}
    implementations = dict.fromkeys(row["implementation"] for row in rows)
    launches = " (kernels launched one by one / in a CUDA graph)" if any(row["graph_ms"] for row in rows) else ""
    return Table(
        [Column("implementation", "left"), *(Column(size.upper()) for size in shapes)],
        [[Cell(name), *(cells.get((name, size), NOT_RUN) for size in shapes)] for name in implementations],
        f"The loss, forward and backward, in {rows[0]['dtype']} on {rows[0]['machine']}: time{launches} and extra "
        f"memory. {'; '.join(shapes.values())}.",
    )


def _loss_cell(row: Row) -> Cell:
    graph = f" / {float(row['graph_ms']):.2f}" if row["graph_ms"] else ""
    memory = ", " + keep_together(f"{float(row['extra_mib']):,.0f} MiB") if row["extra_mib"] else ""
    digits = 0 if row["device"] == "cpu" else 2
    return Cell(keep_together(f"{float(row['median_ms']):,.{digits}f}{graph} ms") + memory)


def _step_rows(results: Path) -> list[Row]:
    """Return the training steps in mixed precision with CUDA graphs."""
    return [row for row in _read(results / STEPS) if row["how"] == "mixed, graphs"]


def _step_table(steps: list[Row]) -> Table:
    corpora = list(dict.fromkeys(step["recipe"].split("-")[0] for step in steps))
    rows = []
    for step in sorted(steps, key=lambda step: corpora.index(step["recipe"].split("-")[0])):
        in_paper = paper.SLOWDOWN.get(int(step["K"]), {}).get(step["paper_column"])
        numbers = [_number(step["median_ms"]), _number(step["tokens_per_second"], 0), _number(step["slowdown"], 2, "x")]
        batch = Cell(keep_together(f"{step['batch']} x {step['bptt']}"))
        rows.append([Cell(code=step["recipe"]), batch, *numbers, _number(in_paper, 1, "x")])
    names = ("batch x words", "ms per step", "words per second", "over the softmax", "in the paper")
    caption = (
        "The models of a corpus differ in size, as in the paper: a ptb-mos step is faster than the softmax's because "
        f"its layers have 960 units instead of 1,150. A whole training step on one {steps[0]['machine']} in mixed "
        "precision with CUDA graphs, each mixture beside the softmax at the same batch size."
    )
    return Table([Column("recipe", "left"), *map(Column, names)], rows, caption)


def _number(value: str | float | None, digits: int = 2, unit: str = "") -> Cell:
    return Cell(f"{float(value):,.{digits}f}{unit}" if value else "-")


def slowdown_table(results: Path) -> ResultTable:
    """Build table 13: training time over the softmax's, on one GPU."""
    measured = {}
    for row in _step_rows(results):
        if row["slowdown"]:
            origin = Origin(STEPS, row["commit"], short_machine_name(row["machine"]), about=row["settings"] or None)
            measured[int(row["K"]), row["paper_column"]] = Result(ours=(float(row["slowdown"]),), origin=origin)
    rows = []
    for k, slowdowns in paper.SLOWDOWN.items():
        cells = []
        for column in PAPER_COLUMNS:
            in_paper = (slowdowns[column],) if column in slowdowns else None
            cells.append(replace(measured.get((k, column), Result()), paper=in_paper, paper_digits=1))
        rows.append((Cell(f"MoS-{k}"), cells))
    return ResultTable("model", [Quantity(name, unit="x") for name in PAPER_COLUMNS], rows)
