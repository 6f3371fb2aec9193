"""The tables of cost: the loss beside its peers, whole training steps, and the paper's table 13 of slowdowns."""

from dataclasses import replace
from pathlib import Path

from highrank.bench.mos_nll import LossRow
from highrank.bench.step import FAST, StepRow
from highrank.bench.table import read_rows
from highrank.report import paper
from highrank.report.records import short_machine_name
from highrank.report.results import NOT_RUN, Origin, Quantity, Result, ResultTable
from highrank.report.table import Cell, Column, Table, keep_together

PAPER_COLUMNS = ("PTB/bs", "PTB/best-1", "WT2/bs", "WT2/best-1", "1B/bs")
STEPS = "benchmarks/step_h200.csv"


def cost_tables(results: Path) -> dict[str, Table]:
    """Return a table for each benchmark that was run: the loss on a GPU and on a CPU, and training steps."""
    tables = {}
    for name, file in (("cost", "mos_nll_h200.csv"), ("cost-cpu", "mos_nll_cpu.csv")):
        path = results / "benchmarks" / file
        if path.exists():
            tables[name] = _loss_table([row for row in read_rows(path, LossRow) if row.status == "ok"])
    if steps := _step_rows(results):
        tables["steps"] = _step_table([row for row in steps if not row.recipe.endswith("-best")])
    return tables


def _loss_table(rows: list[LossRow]) -> Table:
    shapes = {row.size: f"{row.size.upper()}: N={row.N} K={row.K} D={row.D} V={row.V}" for row in rows}
    cells = {(row.implementation, row.size): _loss_cell(row) for row in rows}
    implementations = dict.fromkeys(row.implementation for row in rows)
    in_graphs = any(row.graph_ms is not None for row in rows)
    launches = " (kernels launched one by one / in a CUDA graph)" if in_graphs else ""
    return Table(
        [Column("implementation", "left"), *(Column(size.upper()) for size in shapes)],
        [[Cell(name), *(cells.get((name, size), NOT_RUN) for size in shapes)] for name in implementations],
        f"The loss, forward and backward, in {rows[0].dtype} on {rows[0].machine}: time{launches} and extra memory. "
        f"{'; '.join(shapes.values())}.",
    )


def _loss_cell(row: LossRow) -> Cell:
    graph = "" if row.graph_ms is None else f" / {row.graph_ms:.2f}"
    memory = "" if row.extra_mib is None else f", {keep_together(f'{row.extra_mib:,.0f} MiB')}"
    digits = 0 if row.device == "cpu" else 2
    return Cell(keep_together(f"{row.median_ms:,.{digits}f}{graph} ms") + memory)


def _step_rows(results: Path) -> list[StepRow]:
    """Return the training steps in mixed precision with CUDA graphs."""
    path = results / STEPS
    rows = read_rows(path, StepRow) if path.exists() else []
    return [row for row in rows if row.how == FAST and row.status == "ok"]


def _step_table(steps: list[StepRow]) -> Table:
    corpora = list(dict.fromkeys(step.recipe.split("-")[0] for step in steps))
    rows = []
    for step in sorted(steps, key=lambda step: corpora.index(step.recipe.split("-")[0])):
        in_paper = paper.SLOWDOWN.get(step.K, {}).get(step.paper_column) if "mos" in step.recipe else None
        numbers = [_number(step.median_ms), _number(step.tokens_per_second, 0), _number(step.slowdown, unit="x")]
        batch = Cell(keep_together(f"{step.batch} x {step.bptt}"))
        rows.append([Cell(code=step.recipe), batch, *numbers, _number(in_paper, 1, "x")])
    names = ("batch x words", "ms per step", "words per second", "over the softmax", "in the paper")
    caption = (
        "The models of a corpus differ in size, as in the paper: a ptb-mos step is faster than the softmax's because "
        f"its layers have 960 units instead of 1,150. A whole training step on one {steps[0].machine} in mixed "
        "precision with CUDA graphs, each mixture beside the softmax at the same batch size."
    )
    return Table([Column("recipe", "left"), *map(Column, names)], rows, caption)


def _number(value: float | None, digits: int = 2, unit: str = "") -> Cell:
    return Cell("-" if value is None else f"{value:,.{digits}f}{unit}")


def slowdown_table(results: Path) -> ResultTable:
    """Build table 13: training time over the softmax's, on one GPU."""
    measured = {}
    for row in _step_rows(results):
        if row.paper_column and "mos" in row.recipe and row.slowdown is not None:
            origin = Origin(STEPS, row.commit, short_machine_name(row.machine), about=row.settings or None)
            measured[row.K, row.paper_column] = Result(ours=(row.slowdown,), origin=origin)
    rows = []
    for k, slowdowns in paper.SLOWDOWN.items():
        cells = []
        for column in PAPER_COLUMNS:
            in_paper = (slowdowns[column],) if column in slowdowns else None
            cells.append(replace(measured.get((k, column), Result()), paper=in_paper, paper_digits=1))
        rows.append((Cell(f"MoS-{k}"), cells))
    return ResultTable("model", [Quantity(name, unit="x") for name in PAPER_COLUMNS], rows)
