"""What it costs: the loss beside its peers, whole training steps, and the paper's table 13 of slowdowns."""

from pathlib import Path

from highrank.report import paper
from highrank.report.records import load_csv, machine_name
from highrank.report.results import NOT_RUN, Cell, Column, Origin, Row, Table

FAST = "mixed, graphs"
COLUMNS = ("PTB/bs", "PTB/best-1", "WT2/bs", "WT2/best-1", "1B/bs")


def cost_text(results: Path) -> str:
    """The loss on a CPU and on a GPU, and the training step on a GPU, from the benchmarks' CSV files."""
    return "\n".join(_loss(results) + _gpu_loss(results) + _steps(results)) or f"{NOT_RUN.capitalize()}."


def _loss(results: Path) -> list[str]:
    rows = load_csv(results, "mos_nll_cpu.csv")
    rows = [r for r in rows if r["size"] == rows[0]["size"]]
    if not rows:
        return []
    one = rows[0]
    ours = next((float(r["median_ms"]) for r in rows if r["implementation"] == "highrank, chunked"), None)
    lines = [
        f"The loss of a mixture of {one['K']} softmaxes at Penn Treebank's size (N={one['N']}, D={one['D']}, "
        f"V={int(one['V']):,}, {one['dtype']}), forward and backward, on a CPU ({one['machine']}):\n",
        "| implementation | ms | times ours | extra memory, MiB |\n|---|---|---|---|",
    ]
    for r in rows:
        ms = float(r["median_ms"])
        times = f"{ms / ours:.2f}" if ours else "-"
        extra = f"{float(r['extra_mib']):,.0f}" if r["extra_mib"] else "-"
        lines.append(f"| {r['implementation']} | {ms:,.0f} | {times} | {extra} |")
    return lines


def _gpu_loss(results: Path) -> list[str]:
    rows = [r for r in load_csv(results, "mos_nll_h200.csv") if r["status"] == "ok"]
    if not rows:
        return []
    sizes = list(dict.fromkeys(r["size"] for r in rows))
    shapes = {r["size"]: f"{r['size'].upper()}: N={r['N']} K={r['K']} D={r['D']} V={r['V']}" for r in rows}
    lines = [
        f"\nThe same on one {rows[0]['machine']} ({rows[0]['dtype']}): ms launched one by one / in a CUDA graph, and "
        f"extra memory; peers were launched one by one only. {'; '.join(shapes.values())}.\n",
        f"| implementation | {' | '.join(map(str.upper, sizes))} |\n|---" + "|---" * len(sizes) + "|",
    ]
    for name in dict.fromkeys(r["implementation"] for r in rows):
        found = {r["size"]: r for r in rows if r["implementation"] == name}
        lines.append(f"| {name} | {' | '.join(_two_times(found.get(size)) for size in sizes)} |")
    return lines


def _two_times(row: dict[str, str] | None) -> str:
    if row is None:
        return NOT_RUN
    graph = f" / {float(row['graph_ms']):.2f}" if row["graph_ms"] else ""
    extra = f", {float(row['extra_mib']):,.0f} MiB" if row["extra_mib"] else ""
    return f"{float(row['median_ms']):.2f}{graph} ms{extra}"


def _steps(results: Path) -> list[str]:
    rows = [r for r in load_csv(results, "step_h200.csv") if r["how"] == FAST and not r["recipe"].endswith("-best")]
    if not rows:
        return []
    columns = ("recipe", "batch x words", "ms a step", "words a second", "over the softmax", "in the paper")
    lines = [
        f"\nA whole training step on one {rows[0]['machine']} (mixed precision, CUDA graphs), each mixture beside the "
        "softmax baseline at the same batch size. Each has the sizes with which the paper compares them: the softmax's "
        "wide layers (1,150 units) are what makes a ptb-mos step, with 960, the faster one:\n",
        f"| {' | '.join(columns)} |\n" + "|---" * len(columns) + "|",
    ]
    softmax = {r["recipe"][:3]: float(r["median_ms"]) for r in rows if r["recipe"].endswith("softmax")}
    rows = sorted(rows, key=lambda r: list(softmax).index(r["recipe"][:3]) if r["recipe"][:3] in softmax else 99)
    reported = {name: printed for (k, column), name in _names().items() if (printed := _printed(k, column))}
    for r in rows:
        ms = float(r["median_ms"])
        speed = f"{float(r['tokens_per_second']):,.0f}"
        over = f"{float(r['slowdown']):.2f}x" if r["slowdown"] else "-"
        printed = reported.get(r["recipe"], "-")
        lines.append(f"| `{r['recipe']}` | {r['batch']} x {r['bptt']} | {ms:.2f} | {speed} | {over} | {printed} |")
    return lines


def _names() -> dict[tuple[int, str], str]:
    """What a benchmark calls the models of the paper's "bs" columns."""
    names = {(k, f"{corpus}/bs"): f"{corpus.lower()}-mos-{k}" for corpus in ("PTB", "WT2") for k in (5, 10)}
    return names | {(15, "PTB/bs"): "ptb-mos", (15, "WT2/bs"): "wt2-mos", (7, "1B/bs"): "1b-mos"}


def _printed(k: int, column: str) -> str | None:
    printed = paper.SLOWDOWN.get(k, {}).get(column)
    return None if printed is None else f"{printed:g}x"


def slowdown(results: Path) -> Table:
    """Table 13: training time over the softmax's, on one GPU."""
    measured = {}
    for row in load_csv(results, "step_h200.csv"):
        if row["how"] == FAST and (place := _place(row)) and row["slowdown"]:
            machine = machine_name(row["machine"])
            origin = Origin("benchmarks/step_h200.csv", row["commit"], machine, about=row["settings"])
            measured[place] = Cell(None, (float(row["slowdown"]),), origin)
    rows = []
    for k, printed in paper.SLOWDOWN.items():
        cells = []
        for column in COLUMNS:
            number = (printed[column],) if column in printed else None
            ours = measured.get((k, column), Cell(applies=number is not None))
            source = "table 13" if number else ""
            cells.append(Cell(number, ours.ours, ours.origin, source, applies=ours.applies, paper_digits=1))
        rows.append(Row(f"MoS-{k}", tuple(cells)))
    about = (
        "Time a word of training over the softmax's. bs: the same batch size; best-1: each model's own best settings, "
        "on one GPU. Where the paper had to cut a batch to fit its GPU's memory, we need not."
    )
    columns = tuple(Column(name, unit="x") for name in COLUMNS)
    return Table("time", "Training time over the softmax's", about, "model", columns, rows, tables=(13,))


def _place(row: dict[str, str]) -> tuple[int, str] | None:
    """The row and column of the paper's table that a benchmark's row stands for."""
    return (int(row["K"]), row["paper_column"]) if row["paper_column"] and "mos" in row["recipe"] else None
