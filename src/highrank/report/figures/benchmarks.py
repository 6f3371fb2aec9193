"""Figures of the benchmarks: functions from rows to a matplotlib figure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from highrank.bench.lstm import LSTMRow
from highrank.bench.mos_nll import LossRow
from highrank.bench.scaling import ScalingRow
from highrank.bench.step import FAST, StepRow
from highrank.bench.table import CallRow
from highrank.plotting import BLUE, GREEN, GREY, ORANGE, SKY, pyplot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MILLISECONDS = "ms (pale: eager, full: in a CUDA graph)"


def loss_figure(rows: list[LossRow]) -> "Figure":
    """Draw the times above and the extra memory below, one column per size."""
    sizes = list(dict.fromkeys(row.size for row in rows))
    names = list(dict.fromkeys(row.implementation for row in rows))[::-1]
    figure, axes = _panels(2, len(sizes), 2.4 + 3.1 * len(sizes), 1.2 + 0.85 * len(names))
    for j, size in enumerate(sizes):
        times, memory = axes[:, j]
        for row in (row for row in rows if row.size == size):
            y = names.index(row.implementation)
            color = _color(row.implementation)
            _time_bars(times, y, row, color)
            if row.extra_mib is not None:
                _bar(memory, y, row.extra_mib, color=color)
        shape = f"N={row.N:,}, K={row.K}, D={row.D}, V={row.V:,}"
        times.set_title(shape if "x" in size else f"{size}: {shape}", fontsize=10)
        times.set_xlabel(MILLISECONDS if row.device == "cuda" else "ms", fontsize=9)
        memory.set_xlabel("extra peak memory, MiB", fontsize=9)
        for axis in (times, memory):
            _name_bars(axis, names if j == 0 else [""] * len(names))
    figure.suptitle(f"mos_nll, forward and backward, {rows[0].dtype}\n{rows[0].machine}", fontsize=11)
    return figure


def lstm_figure(rows: list[LSTMRow]) -> "Figure":
    """Draw the times of the LSTM layers, one column per shape."""
    shapes = list(dict.fromkeys((row.layers, row.batch) for row in rows))
    names = list(dict.fromkeys(row.implementation for row in rows))[::-1]
    figure, axes = _panels(1, len(shapes), 2.4 + 3.1 * len(shapes), 1.4 + 0.6 * len(names))
    for j, (shape, axis) in enumerate(zip(shapes, axes[0], strict=True)):
        for row in (row for row in rows if (row.layers, row.batch) == shape):
            _time_bars(axis, names.index(row.implementation), row, _color(row.implementation))
        axis.set_title(f"layers {shape[0]}, batch {shape[1]}", fontsize=10)
        axis.set_xlabel(MILLISECONDS if rows[0].device == "cuda" else "ms", fontsize=9)
        _name_bars(axis, names if j == 0 else [""] * len(names))
    figure.suptitle(f"LSTM layers, {rows[0].T} steps, forward and backward, on {rows[0].machine}", fontsize=11)
    return figure


def step_figure(rows: list[StepRow]) -> "Figure":
    """Draw the time of a step, and the slowdown over softmax next to the paper's."""
    compared = [row for row in rows if row.slowdown is not None and row.softmax != row.recipe][::-1]
    figure, axes = _panels(1, 2, 12.5, 1.8 + 0.3 * max(len(rows), 2 * len(compared), 4))
    times, ratios = axes[0]
    for y, row in enumerate(rows[::-1]):
        _bar(times, y, row.median_ms, (row.q25_ms, row.q75_ms), color=GREEN if row.how == FAST else SKY)
    _name_bars(times, [f"{row.recipe}, {row.batch} columns, {row.how}" for row in rows[::-1]])
    times.set_xlabel("ms per step", fontsize=9)
    for y, row in enumerate(compared):
        color = GREEN if row.how == FAST else SKY
        _bar(ratios, y + 0.2, row.slowdown, height=0.36, color=color, label=f"here, {row.how}")
        if row.paper_slowdown:
            _bar(ratios, y - 0.2, row.paper_slowdown, height=0.36, color=GREY, hatch="//", label="in the paper")
    _name_bars(ratios, [f"{row.recipe}, {row.how}" for row in compared])
    ratios.set_xlabel("training time per word over the softmax's", fontsize=9)
    ratios.axvline(1, color=GREY, linewidth=0.8, linestyle=":", zorder=0)
    handles = {label: handle for handle, label in zip(*ratios.get_legend_handles_labels(), strict=True)}
    if handles:
        figure.legend(handles.values(), handles, fontsize=9, loc="outside lower right", ncols=3)
    figure.suptitle(f"Whole training steps on {rows[0].machine}", fontsize=11)
    return figure


def scaling_figure(rows: list[ScalingRow]) -> "Figure":
    """Draw the times above and the extra memory below, over K, V and N; numbers are ratios to one softmax."""
    from matplotlib.patheffects import withStroke
    from matplotlib.ticker import FuncFormatter, LogLocator

    labels = {"K": "components K", "V": "vocabulary V", "N": "tokens N"}
    sweeps = [name for name in labels if any(row.sweep == name for row in rows)]
    series: Sequence[tuple[str, str, str, dict[str, str]]] = (
        ("best_ms", "extra_mib", "mixture of K softmaxes (highrank)", {"color": GREEN, "marker": "o"}),
        ("softmax_ms", "softmax_mib", "one softmax (highrank, K = 1)",
         {"color": BLUE, "marker": "s", "linestyle": "--"}),
        ("cross_entropy_ms", "cross_entropy_mib", "one softmax (torch cross_entropy)",
         {"color": ORANGE, "marker": "^", "linestyle": ":"}),
    )  # fmt: skip
    figure, axes = _panels(2, len(sweeps), 12.5, 7.2)
    for j, name in enumerate(sweeps):
        here = [row for row in rows if row.sweep == name]
        x = [getattr(row, name) for row in here]
        for ms, mib, label, style in series:
            for axis, field, least in ((axes[0, j], ms, 0.0), (axes[1, j], mib, 0.1)):
                values = [getattr(row, field) for row in here]
                known = [(a, max(b, least)) for a, b in zip(x, values, strict=True) if b is not None]
                axis.plot([a for a, _ in known], [b for _, b in known], label=label, markersize=5, **style)
        for row in here:
            axes[0, j].annotate(
                f"{row.ratio:.1f}x", (getattr(row, name), row.best_ms), (-1, 6), textcoords="offset points",
                ha="right", fontsize=9, color=GREEN, path_effects=[withStroke(linewidth=3, foreground="white")],
            )  # fmt: skip
        fixed = {key: getattr(here[0], key) for key in ("N", "K", "D", "V") if key != name}
        axes[0, j].set_title(", ".join(f"{key}={value:,}" for key, value in fixed.items()), fontsize=10)
        for axis in axes[:, j]:
            axis.set(xscale="log", yscale="log", xlabel=labels[name])
            axis.set_xticks(x, [f"{value / 1000:.3g}k" if value >= 1000 else str(value) for value in x])
            axis.minorticks_off()
            axis.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
            axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
            axis.grid(alpha=0.3)
            axis.margins(x=0.14, y=0.14)
    axes[0, 0].set_ylabel("ms, forward and backward")
    axes[1, 0].set_ylabel("extra peak memory, MiB")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), fontsize=9, loc="outside lower center", ncols=3)
    figure.suptitle(f"What K, V and N cost, {rows[0].dtype}, on {rows[0].machine}", fontsize=11)
    return figure


def _panels(down: int, across: int, width: float, height: float) -> tuple[Any, Any]:
    return pyplot().subplots(down, across, figsize=(width, height), layout="constrained", squeeze=False)


def _time_bars(axis: Any, y: float, row: CallRow, color: str) -> None:
    """Draw the eager time in a pale colour, and the time in a CUDA graph below it if there is one."""
    quartiles = (row.q25_ms, row.q75_ms)
    if row.graph_ms is None:
        _bar(axis, y, row.median_ms, quartiles, color=color, alpha=0.45 if row.device == "cuda" else 1.0)
        return
    _bar(axis, y + 0.2, row.median_ms, quartiles, height=0.36, color=color, alpha=0.45)
    _bar(axis, y - 0.2, row.graph_ms, (row.graph_q25_ms, row.graph_q75_ms), height=0.36, color=color)


def _bar(axis: Any, y: float, value: Any, quartiles: Any = None, *, height: float = 0.6, **style: Any) -> None:
    """Draw a horizontal bar with its value in three digits, and a line from quartile to quartile."""
    axis.barh(y, value, height, **style)
    end = value
    if quartiles:
        axis.plot(quartiles, (y, y), color="black", linewidth=1)
        end = max(value, quartiles[1])
    text = f"{value:,.0f}" if value >= 100 else f"{value:#.3g}".removesuffix(".")
    axis.annotate(text, (end, y), (4, 0), textcoords="offset points", va="center", fontsize=9)


def _name_bars(axis: Any, names: list[str]) -> None:
    """Label the bars and make room for their numbers; the scale is logarithmic if short bars would disappear."""
    from matplotlib.ticker import FuncFormatter

    values = [patch.get_width() for patch in axis.patches if patch.get_width() > 0]
    if values and max(values) > 40 * min(values):
        axis.set_xscale("log")
        axis.set_xlim(min(values) / 3, max(values) * (max(values) / min(values)) ** 0.3)
    elif values:
        axis.set_xlim(0, max(values) * 1.3)
    axis.set_yticks(range(len(names)), names, fontsize=9)
    axis.set_ylim(-0.6, max(len(names), 1) - 0.4)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.grid(alpha=0.3, axis="x")
    axis.set_axisbelow(True)


def _color(name: str) -> str:
    return GREEN if name.startswith("highrank") else GREY if name.startswith("naive") else BLUE
