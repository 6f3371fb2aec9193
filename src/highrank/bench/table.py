"""The tables of the benchmarks, as a terminal shows them."""

from rich.markup import escape
from rich.table import Table

from highrank.bench.record import Row


def loss_table(rows: list[Row]) -> Table:
    one = rows[0]
    names = ["size", "implementation", "ms", "quartiles", "graph", "kernels", "x ours", "eager"]
    names += ["TFLOP/s", "ceiling", "extra MiB", "error", "note"]
    table = _table(f"mos_nll, forward and backward, {one['dtype']}, {one['machine']}", names, 2)
    for row in rows:
        share = row["tflops"] / row["ceiling_tflops"] if row["tflops"] else None
        numbers = [_number(row["median_ms"]), _range(row), _number(row["graph_ms"]), _number(row["busy_ms"])]
        numbers += [_number(row["times_ours"]), _number(row["eager_times_ours"])]
        numbers += [_number(row["tflops"], 3 if (row["tflops"] or 0) < 10 else 0), f"{share:.0%}" if share else "-"]
        numbers += [_number(row["extra_mib"], 0), f"{row['grad_error']:.0e}" if row["grad_error"] is not None else "-"]
        table.add_row(row["size"], row["implementation"], *numbers, _note(row))
    return table


def scaling_table(rows: list[Row]) -> Table:
    one = rows[0]
    names = ["sweep", "N", "K", "V", "ms", "one softmax", "ratio", "torch's softmax", "extra MiB", "one softmax, MiB"]
    table = _table(f"mos_nll over K, V and N, D={one['D']}, {one['dtype']}, {one['machine']}", [*names, "note"], 1)
    for row in rows:
        sizes = [f"{row[name]:,}" for name in ("N", "K", "V")]
        numbers = [_number(row[name]) for name in ("best_ms", "softmax_ms", "ratio", "cross_entropy_ms")]
        numbers += [_number(row[name], 1) for name in ("extra_mib", "softmax_mib")]
        table.add_row(row["sweep"], *sizes, *numbers, _note(row))
    return table


def lstm_table(rows: list[Row]) -> Table:
    one = rows[0]
    names = ["layers", "implementation", "batch", "ms", "quartiles", "graph", "x ours", "note"]
    table = _table(f"LSTM layers, {one['T']} steps, forward and backward, {one['machine']}", names, 2)
    for row in rows:
        numbers = [_number(row["median_ms"]), _range(row), _number(row["graph_ms"]), _number(row["times_ours"])]
        table.add_row(row["layers"], row["implementation"], str(row["batch"]), *numbers, _note(row))
    return table


def step_table(rows: list[Row]) -> Table:
    names = ["recipe", "how", "batch", "K", "ms", "quartiles", "words/s", "peak MiB", "x softmax", "paper", "note"]
    table = _table(f"whole training steps, {rows[0]['machine']}", names, 2)
    for row in rows:
        numbers = [str(row["batch"]), str(row["K"]), _number(row["median_ms"]), _range(row)]
        numbers += [_number(row["tokens_per_second"], 0), _number(row["peak_mib"], 0), _number(row["slowdown"])]
        paper = f"{row['paper_slowdown']:g}x {row['paper_column']}" if row["paper_slowdown"] else "-"
        table.add_row(row["recipe"], row["how"], *numbers, paper, _note(row))
    return table


def _table(title: str, names: list[str], left: int) -> Table:
    table = Table(title=title, title_justify="left")
    for i, name in enumerate(names):
        table.add_column(name, justify="left" if i < left or name == "note" else "right", no_wrap=name != "note")
    return table


def _number(value: float | None, digits: int = 2) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.{digits}f}"


def _range(row: Row) -> str:
    return "-" if row["q25_ms"] is None else f"{_number(row['q25_ms'])} to {_number(row['q75_ms'])}"


def _note(row: Row) -> str:
    return "" if row["status"] == "ok" else escape(row["status"])
