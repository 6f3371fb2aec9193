"""Draws the CSV files of mos_nll.py: time above, extra memory below, for each size or over K, V and N.

python benchmarks/mos_nll_figure.py results/benchmarks/mos_nll_h200.csv docs/figures/mos_nll_h200.png
python benchmarks/mos_nll_figure.py results/benchmarks/mos_nll_scaling_h200.csv docs/figures/mos_nll_scaling_h200.png
"""

import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from highrank.plotting import BLUE, GREEN, GREY, ORANGE, pyplot, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]
NUMBERS = ("median_ms", "graph_ms", "best_ms", "times_ours", "extra_mib")
TIME, MEMORY = "ms, forward and backward", "extra peak memory, MiB"


def read_rows(path: Path) -> list[Row]:
    """Return the rows that were measured, with their numbers as floats; None where there is none."""
    with open(path, newline="", encoding="utf-8") as file:
        rows: list[Row] = [row for row in csv.DictReader(file) if row["status"] == "ok"]
    for row in rows:
        row.update({name: float(row[name]) if row.get(name) else None for name in NUMBERS})
    return rows


def draw_sizes(rows: list[Row]) -> "Figure":
    """Draw one column per size: times, eager and in a CUDA graph, and below them the extra memory."""
    sizes = list(dict.fromkeys(row["size"] for row in rows))
    bars = max(sum((row["graph_ms"] is not None) + 1 for row in rows if row["size"] == size) for size in sizes)
    figure, axes = panels(len(sizes), 2 + 4.2 * len(sizes), (1.2 + 0.3 * bars) * 1.7)
    for j, size in enumerate(sizes):
        here = [row for row in rows if row["size"] == size]
        times = [
            (row["implementation"] + suffix, row[column])
            for row in here
            for suffix, column in (("", "median_ms"), (" (graph)", "graph_ms"))
        ]
        draw_bars(axes[0, j], times, TIME)
        axes[0, j].set_title(size, fontsize=10)
        draw_bars(axes[1, j], [(row["implementation"], row["extra_mib"]) for row in here], MEMORY)
    figure.suptitle(rows[0]["machine"], fontsize=11)
    return figure


def draw_bars(axis: Any, bars: list[tuple[str, float | None]], label: str) -> None:
    """Draw horizontal bars with their values, or dots on a logarithmic scale if short bars would disappear."""
    known = [(name, value) for name, value in reversed(bars) if value is not None]
    names = [name for name, _ in known]
    values = [value for _, value in known]
    colors = [color(name) for name in names]
    texts = [f"{x:,.0f}" if x >= 100 else f"{x:.3g}" for x in values]
    if values and max(values) > 40 * min(values) > 0:  # a bar would begin at an arbitrary value
        axis.set_xscale("log")
        axis.scatter(values, names, color=colors, s=50)
        for text, value, name in zip(texts, values, names, strict=True):
            axis.annotate(text, (value, name), (8, 0), textcoords="offset points", va="center", fontsize=9)
        axis.margins(x=0.4, y=0.12)
    else:
        axis.bar_label(axis.barh(names, values, color=colors), texts, padding=4, fontsize=9)
        axis.margins(x=0.3, y=0.02)
    axis.set_xlabel(label, fontsize=9)
    axis.tick_params(axis="y", labelsize=9)
    axis.grid(alpha=0.3, axis="x")
    axis.set_axisbelow(True)


def color(name: str) -> str:
    return GREEN if name.startswith("highrank") else GREY if name.startswith("naive") else BLUE


def draw_scaling(rows: list[Row]) -> "Figure":
    """Draw the times above and the extra memory below, over K, V and N; numbers are ratios to one softmax."""
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    labels = {"K": "components K", "V": "vocabulary V", "N": "tokens N"}
    styles = {"highrank": (GREEN, "o-"), "highrank, K = 1": (BLUE, "s--"), "cross_entropy, K = 1": (ORANGE, "^:")}
    figure, axes = panels(len(labels), 12.5, 7.2)
    for j, (name, label) in enumerate(labels.items()):
        for implementation, (line_color, style) in styles.items():
            here = [row for row in rows if row["size"].startswith(name) and row["implementation"] == implementation]
            x = [int(row["size"].removeprefix(f"{name}=")) for row in here]
            options = {"color": line_color, "label": implementation, "markersize": 5}
            axes[0, j].plot(x, [row["best_ms"] for row in here], style, **options)
            axes[1, j].plot(x, [row["extra_mib"] and max(row["extra_mib"], 0.1) for row in here], style, **options)
            if implementation == "highrank":
                for value, row in zip(x, here, strict=True):
                    point = (value, row["best_ms"])
                    axes[0, j].annotate(
                        f"{row['times_ours']:.1f}x", point, (-1, 6), textcoords="offset points", ha="right"
                    )
        for axis in axes[:, j]:
            axis.set(xscale="log", yscale="log", xlabel=label)
            axis.set_xticks(x, [f"{value / 1000:.3g}k" if value >= 1000 else str(value) for value in x])
            axis.minorticks_off()
            axis.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
            axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
            axis.grid(alpha=0.3)
            axis.margins(0.14)
    axes[0, 0].set_ylabel(TIME)
    axes[1, 0].set_ylabel(MEMORY)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.suptitle(f"What K, V and N cost, {rows[0]['dtype']}, on {rows[0]['machine']}", fontsize=11)
    return figure


def panels(across: int, width: float, height: float) -> tuple[Any, Any]:
    return pyplot().subplots(2, across, figsize=(width, height), layout="constrained", squeeze=False)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    found = read_rows(Path(sys.argv[1]))
    draw = draw_scaling if "=" in found[0]["size"] else draw_sizes
    save_figure(draw(found), [Path(sys.argv[2])])
