"""Figures of the benchmarks: functions from rows to a matplotlib figure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from highrank.bench.mos_nll import LossRow
from highrank.bench.step import FAST, StepRow
from highrank.bench.table import CallRow
from highrank.plotting import BLUE, GREEN, GREY, ORANGE, SKY, pyplot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Bar = tuple[str, float | None, str]  # name, value, colour


def call_figure(rows: Sequence[CallRow]) -> "Figure":
    """Draw one column per size: times, eager and in a CUDA graph, and below them the extra memory if it is known."""
    sizes = list(dict.fromkeys(row.size for row in rows))
    memory = [row for row in rows if isinstance(row, LossRow)]
    height = 1.2 + 0.3 * max(sum((row.graph_ms is not None) + 1 for row in rows if row.size == size) for size in sizes)
    figure, axes = _panels(2 if memory else 1, len(sizes), 2 + 4.2 * len(sizes), height * (1.7 if memory else 1))
    for j, size in enumerate(sizes):
        bars: list[Bar] = []
        for row in (row for row in rows if row.size == size):
            bars.append((row.implementation, row.median_ms, _color(row.implementation)))
            if row.graph_ms is not None:
                bars.append((f"{row.implementation} (graph)", row.graph_ms, _color(row.implementation)))
        _draw_bars(axes[0, j], bars, "ms, forward and backward")
        axes[0, j].set_title(size, fontsize=10)
        if memory:
            extra = [
                (row.implementation, row.extra_mib, _color(row.implementation)) for row in memory if row.size == size
            ]
            _draw_bars(axes[1, j], extra, "extra peak memory, MiB")
    figure.suptitle(rows[0].machine, fontsize=11)
    return figure


def step_figure(rows: Sequence[StepRow]) -> "Figure":
    """Draw the time of a step, and the slowdown over softmax next to the paper's."""
    compared = [row for row in rows if row.slowdown is not None and row.softmax != row.recipe]
    figure, (axes,) = _panels(1, 2, 12.5, 1.8 + 0.3 * max(len(rows), 2 * len(compared), 4))
    colors = {row: GREEN if row.how == FAST else SKY for row in rows}
    _draw_bars(axes[0], [(f"{row.recipe}, {row.how}", row.median_ms, colors[row]) for row in rows], "ms per step")
    ratios: list[Bar] = []
    for row in compared:
        ratios.append((f"{row.recipe}, {row.how}", row.slowdown, colors[row]))
        if row.paper_slowdown:
            ratios.append((f"{row.recipe}, {row.how}, in the paper", row.paper_slowdown, GREY))
    _draw_bars(axes[1], ratios, "training time per word over the softmax's")
    figure.suptitle(f"Whole training steps on {rows[0].machine}", fontsize=11)
    return figure


def scaling_figure(rows: Sequence[LossRow]) -> "Figure":
    """Draw the times above and the extra memory below, over K, V and N; numbers are ratios to one softmax."""
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    labels = {"K": "components K", "V": "vocabulary V", "N": "tokens N"}
    styles = {"highrank": (GREEN, "o-"), "highrank, K = 1": (BLUE, "s--"), "cross_entropy, K = 1": (ORANGE, "^:")}
    figure, axes = _panels(2, len(labels), 12.5, 7.2)
    for j, (name, label) in enumerate(labels.items()):
        for implementation, (color, style) in styles.items():
            here = [row for row in rows if row.size.startswith(name) and row.implementation == implementation]
            x = [int(row.size.removeprefix(f"{name}=")) for row in here]
            options = {"color": color, "label": implementation, "markersize": 5}
            axes[0, j].plot(x, [row.best_ms for row in here], style, **options)
            axes[1, j].plot(x, [row.extra_mib and max(row.extra_mib, 0.1) for row in here], style, **options)
            if implementation == "highrank":
                for value, row in zip(x, here, strict=True):
                    text = f"{row.times_ours:.1f}x"
                    axes[0, j].annotate(text, (value, row.best_ms), (-1, 6), textcoords="offset points", ha="right")
        for axis in axes[:, j]:
            axis.set(xscale="log", yscale="log", xlabel=label)
            axis.set_xticks(x, [f"{value / 1000:.3g}k" if value >= 1000 else str(value) for value in x])
            axis.minorticks_off()
            axis.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
            axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
            axis.grid(alpha=0.3)
            axis.margins(0.14)
    axes[0, 0].set_ylabel("ms, forward and backward")
    axes[1, 0].set_ylabel("extra peak memory, MiB")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.suptitle(f"What K, V and N cost, {rows[0].dtype}, on {rows[0].machine}", fontsize=11)
    return figure


def _panels(down: int, across: int, width: float, height: float) -> tuple[Any, Any]:
    return pyplot().subplots(down, across, figsize=(width, height), layout="constrained", squeeze=False)


def _draw_bars(axis: Any, bars: Sequence[Bar], label: str) -> None:
    """Draw horizontal bars with their values; the scale is logarithmic if short bars would disappear."""
    known = [(name, value, color) for name, value, color in bars if value is not None]
    names, values, colors = zip(*known[::-1], strict=True) if known else ((), (), ())
    drawn = axis.barh(names, values, color=colors)
    axis.bar_label(drawn, [f"{x:,.0f}" if x >= 100 else f"{x:.3g}" for x in values], padding=4, fontsize=9)
    axis.margins(x=0.3, y=0.02)
    axis.set_xlabel(label, fontsize=9)
    axis.tick_params(axis="y", labelsize=9)
    if values and max(values) > 40 * min(values) > 0:
        axis.set_xscale("log")
    axis.grid(alpha=0.3, axis="x")
    axis.set_axisbelow(True)


def _color(name: str) -> str:
    return GREEN if name.startswith("highrank") else GREY if name.startswith("naive") else BLUE
