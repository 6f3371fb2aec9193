"""The tables of cost: the loss beside its peers, whole training steps, and the paper's table 13 of slowdowns."""

from dataclasses import replace
from pathlib import Path

from highrank.bench.mos_nll import LossRow
from highrank.bench.step import FAST, StepRow
from highrank.bench.table import read_rows
from highrank.report import paper
from highrank.report.records import short_machine_name
from highrank.report.results import NOT_RUN, Origin, Quantity, Result, ResultTable, Row, Section
from highrank.report.table import Cell, Code, Column, Table, keep_together

PAPER_COLUMNS = ("PTB/bs", "PTB/best-1", "WT2/bs", "WT2/best-1", "1B/bs")
STEPS = "benchmarks/step_h200.csv"


def cost_sections(results: Path) -> list[Section]:
    """Return a table for each benchmark that was run: the loss on a GPU and on a CPU, and training steps."""
    gpu = _loss_rows(results / "benchmarks" / "mos_nll_h200.csv")
    cpu = _loss_rows(results / "benchmarks" / "mos_nll_cpu.csv")
    steps = [row for row in _step_rows(results) if not row.recipe.endswith("-best")]
    sections = [_gpu_loss(gpu)] if gpu else []
    sections += [_cpu_loss(cpu)] if cpu else []
    sections += [_steps(steps)] if steps else []
    return sections


def _loss_rows(path: Path) -> list[LossRow]:
    return [row for row in read_rows(path, LossRow) if row.status == "ok"] if path.exists() else []


def _step_rows(results: Path) -> list[StepRow]:
    """Return the training steps in mixed precision with CUDA graphs."""
    path = results / STEPS
    rows = read_rows(path, StepRow) if path.exists() else []
    return [row for row in rows if row.how == FAST and row.status == "ok"]


def _gpu_loss(rows: list[LossRow]) -> Section:
    shapes = {row.size: f"{row.size.upper()}: N={row.N} K={row.K} D={row.D} V={row.V}" for row in rows}
    by_place = {(row.implementation, row.size): row for row in rows}
    implementations = dict.fromkeys(row.implementation for row in rows)
    table = Table(
        [Column("implementation", "left"), *(Column(size.upper()) for size in shapes)],
        [[Cell(name), *(_gpu_cell(by_place.get((name, size))) for size in shapes)] for name in implementations],
    )
    caption = (
        f"Forward and backward pass of the loss on one {rows[0].machine} in {rows[0].dtype}: time when kernels are "
        "launched one by one / in a CUDA graph, and extra memory. Peers were launched one by one only. "
        f"{'; '.join(shapes.values())}."
    )
    return Section("cost", "The loss on a GPU", table, caption=caption)


def _gpu_cell(row: LossRow | None) -> Cell:
    if row is None:
        return Cell(NOT_RUN, style="none")
    graph = "" if row.graph_ms is None else f" / {row.graph_ms:.2f}"
    memory = "" if row.extra_mib is None else f", {keep_together(f'{row.extra_mib:,.0f} MiB')}"
    return Cell(keep_together(f"{row.median_ms:.2f}{graph} ms") + memory)


def _cpu_loss(rows: list[LossRow]) -> Section:
    first = rows[0]
    table = Table(
        [Column("implementation", "left"), Column("ms"), Column("times ours"), Column("extra memory, MiB")],
        [
            [Cell(row.implementation), _number(row.median_ms, 0), _number(row.times_ours), _number(row.extra_mib, 0)]
            for row in rows
            if row.size == first.size
        ],
    )
    caption = (
        f"Forward and backward pass of the loss of a mixture of {first.K} softmaxes at Penn Treebank's size "
        f"(N={first.N}, D={first.D}, V={first.V:,}, {first.dtype}) on a CPU ({first.machine})."
    )
    return Section("cost-cpu", "The loss on a CPU", table, caption=caption)


def _steps(rows: list[StepRow]) -> Section:
    corpora = list(dict.fromkeys(_corpus(row) for row in rows))
    table_rows = []
    for row in sorted(rows, key=lambda row: corpora.index(_corpus(row))):
        in_paper = paper.SLOWDOWN.get(row.K, {}).get(row.paper_column) if "mos" in row.recipe else None
        numbers = [_number(row.median_ms), _number(row.tokens_per_second, 0), _number(row.slowdown, unit="x")]
        batch = Cell(keep_together(f"{row.batch} x {row.bptt}"))
        table_rows.append([Cell(Code(row.recipe)), batch, *numbers, _number(in_paper, 1, "x")])
    names = ("batch x words", "ms per step", "words per second", "over the softmax", "in the paper")
    caption = (
        f"A whole training step on one {rows[0].machine} in mixed precision with CUDA graphs, each mixture beside the "
        "softmax baseline at the same batch size. Sizes are those that the paper compares: a ptb-mos step is the "
        "faster one because its layers have 960 units, the softmax's 1,150."
    )
    table = Table([Column("recipe", "left"), *map(Column, names)], table_rows)
    return Section("steps", "Training steps", table, caption=caption)


def _corpus(row: StepRow) -> str:
    return row.recipe.split("-")[0]


def _number(value: float | None, digits: int = 2, unit: str = "") -> Cell:
    return Cell("-" if value is None else f"{value:,.{digits}f}{unit}")


def slowdown_table(results: Path) -> ResultTable:
    """Build table 13: training time over the softmax's, on one GPU."""
    measured: dict[tuple[int, str], Result] = {}
    for row in _step_rows(results):
        if row.paper_column and "mos" in row.recipe and row.slowdown is not None:
            origin = Origin(STEPS, row.commit, short_machine_name(row.machine), about=row.settings or None)
            measured[row.K, row.paper_column] = Result(None, (row.slowdown,), origin)
    rows = []
    for k, slowdowns in paper.SLOWDOWN.items():
        results_of_row = []
        for column in PAPER_COLUMNS:
            in_paper = (slowdowns[column],) if column in slowdowns else None
            source = "table 13" if in_paper else ""
            result = measured.get((k, column), Result(applies=in_paper is not None))
            results_of_row.append(replace(result, paper=in_paper, source=source, paper_digits=1))
        rows.append(Row(f"MoS-{k}", tuple(results_of_row)))
    about = (
        "Training time per word over the softmax's, on one GPU. bs: at the same batch size; best-1: with each model's "
        "own best settings. The paper had to reduce some batches to fit its GPU's memory; ours fit."
    )
    quantities = tuple(Quantity(name, unit="x") for name in PAPER_COLUMNS)
    title = "Training time over the softmax's"
    return ResultTable("time", title, about, "model", quantities, rows, paper_tables=(13,))
