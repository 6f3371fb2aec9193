"""The pictures of the benchmarks, each as PNG and SVG. Okabe and Ito's palette; hatches and markers help in print."""

from pathlib import Path
from typing import Any

from highrank.bench.record import Row
from highrank.plotting import BLUE, GREEN, GREY, ORANGE, SKY, pyplot, save_figure


def draw_losses(path: Path, rows: list[Row]) -> list[Path]:
    """Time above, extra memory below, a column a size."""
    sizes = list(dict.fromkeys(row["size"] for row in rows))
    names = list(dict.fromkeys(row["implementation"] for row in rows))[::-1]
    figure, axes = _panels(2, len(sizes), 2.4 + 3.1 * len(sizes), 1.2 + 0.85 * len(names))
    graphs = any(row["graph_ms"] is not None for row in rows)
    for j, size in enumerate(sizes):
        here = {row["implementation"]: row for row in rows if row["size"] == size}
        one = next(iter(here.values()))
        for i, name in enumerate(names):
            row = here.get(name)
            if row is None or row["median_ms"] is None:
                note = "" if row is None else row["status"].split(":")[0]
                for axis in axes[:, j]:
                    axis.annotate(note, (0.03, i), xycoords=("axes fraction", "data"), va="center", color=GREY)
                continue
            color = _color(name)
            if row["graph_ms"] is not None:
                _bar(axes[0, j], i + 0.2, row, "median_ms", color, 0.36, light=True)
                _bar(axes[0, j], i - 0.2, row, "graph_ms", color, 0.36, quartiles=("graph_q25_ms", "graph_q75_ms"))
            else:
                _bar(axes[0, j], i, row, "median_ms", color, 0.6, light=graphs)
            if row["extra_mib"] is not None:
                _bar(axes[1, j], i, row, "extra_mib", color, 0.6, quartiles=None)
        shape = f"N={one['N']:,}, K={one['K']}, D={one['D']}, V={one['V']:,}"
        axes[0, j].set_title(f"{size}: {shape}" if "x" not in size else shape, fontsize=10)
        axes[0, j].set_xlabel("ms (pale: eager, full: in a CUDA graph)" if graphs else "ms", fontsize=9)
        axes[1, j].set_xlabel("extra peak memory, MiB", fontsize=9)
    for axis in axes.flat:
        axis.set_yticks(range(len(names)), names if axis in axes[:, 0] else [""] * len(names))
        axis.set_ylim(-0.6, len(names) - 0.4)
        _room_for_labels(axis)
    figure.suptitle(f"mos_nll, forward and backward, {rows[0]['dtype']}\n{rows[0]['machine']}", fontsize=11)
    return _save(figure, path)


def draw_scaling(path: Path, rows: list[Row]) -> list[Path]:
    """Time above, extra memory below, over K, V and N; the numbers are the mixture's time over one softmax's."""
    rows = [row for row in rows if row["best_ms"] is not None]
    sweeps = [name for name in ("K", "V", "N") if any(row["sweep"] == name for row in rows)]
    figure, axes = _panels(2, max(1, len(sweeps)), 12.5, 7.2)
    from matplotlib.patheffects import withStroke
    from matplotlib.ticker import FuncFormatter, LogLocator

    labels = {"K": "components K", "V": "vocabulary V", "N": "tokens N"}
    series = (
        ("best_ms", "extra_mib", "mixture of K softmaxes (highrank)", GREEN, "o", "-"),
        ("softmax_ms", "softmax_mib", "one softmax (highrank, K = 1)", BLUE, "s", "--"),
        ("cross_entropy_ms", "cross_entropy_mib", "one softmax (torch cross_entropy)", ORANGE, "^", ":"),
    )
    for j, name in enumerate(sweeps):
        here = [row for row in rows if row["sweep"] == name]
        x = [row[name] for row in here]
        for ms, mib, label, color, marker, line in series:
            style = {"color": color, "marker": marker, "linestyle": line, "markersize": 5, "label": label}
            axes[0, j].plot(x, [row[ms] for row in here], **style)
            known = [(row[name], max(row[mib], 0.1)) for row in here if row[mib] is not None]
            if known:
                axes[1, j].plot(*zip(*known, strict=True), **style)
        for row in here:
            where = (row[name], row["best_ms"])
            axes[0, j].annotate(
                f"{row['ratio']:.1f}x", where, (-1, 6), textcoords="offset points", ha="right", fontsize=9, color=GREEN,
                path_effects=[withStroke(linewidth=3, foreground="white")],  # readable over another line
            )  # fmt: skip
        fixed = {k: here[0][k] for k in ("N", "K", "D", "V") if k != name}
        axes[0, j].set_title(", ".join(f"{k}={v:,}" for k, v in fixed.items()), fontsize=10)
        for axis in axes[:, j]:
            axis.set(xscale="log", yscale="log", xlabel=labels[name])
            axis.set_xticks(x, [_short(value) for value in x])
            axis.minorticks_off()
            axis.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
            axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
            axis.grid(alpha=0.3)
            axis.margins(x=0.14, y=0.14)
    axes[0, 0].set_ylabel("ms, forward and backward")
    axes[1, 0].set_ylabel("extra peak memory, MiB")
    axes[0, 0].legend(fontsize=9, loc="upper left")
    low, high = axes[0, 0].get_ylim()
    axes[0, 0].set_ylim(low, high * (high / low) ** 0.35)  # the legend stands above the curves
    figure.suptitle(f"What K, V and N cost, {rows[0]['dtype']}, on {rows[0]['machine']}", fontsize=11)
    return _save(figure, path)


def draw_lstm(path: Path, rows: list[Row]) -> list[Path]:
    shapes = list(dict.fromkeys((row["layers"], row["batch"]) for row in rows))
    names = list(dict.fromkeys(row["implementation"] for row in rows))[::-1]
    figure, axes = _panels(1, len(shapes), 2.4 + 3.1 * len(shapes), 1.4 + 0.6 * len(names))
    graphs = any(row["graph_ms"] is not None for row in rows)
    for j, (layers, batch) in enumerate(shapes):
        axis = axes[0, j]
        for row in rows:
            if (row["layers"], row["batch"]) != (layers, batch):
                continue
            i, color = names.index(row["implementation"]), _color(row["implementation"])
            if row["median_ms"] is None:
                axis.annotate(row["status"].split(":")[0], (0.03, i), xycoords=("axes fraction", "data"), va="center")
            elif row["graph_ms"] is not None:
                _bar(axis, i + 0.2, row, "median_ms", color, 0.36, light=True)
                _bar(axis, i - 0.2, row, "graph_ms", color, 0.36, quartiles=("graph_q25_ms", "graph_q75_ms"))
            else:
                _bar(axis, i, row, "median_ms", color, 0.6, light=graphs)
        axis.set_title(f"layers {layers}, batch {batch}", fontsize=10)
        axis.set_xlabel("ms" + (" (pale: eager, full: in a CUDA graph)" if graphs else ""), fontsize=9)
        axis.set_yticks(range(len(names)), names if j == 0 else [""] * len(names))
        _room_for_labels(axis)
    one = rows[0]
    figure.suptitle(f"LSTM layers, {one['T']} steps, forward and backward, on {one['machine']}", fontsize=11)
    return _save(figure, path)


def draw_steps(path: Path, rows: list[Row]) -> list[Path]:
    """The time of a step, and the slowdown over softmax beside the paper's."""
    rows = [row for row in rows if row["median_ms"] is not None]
    compared = [row for row in rows if row["slowdown"] is not None and row["softmax"] != row["recipe"]]
    figure, axes = _panels(1, 2, 12.5, 1.8 + 0.3 * max(len(rows), 2 * len(compared), 4))
    times, ratios = axes[0]
    hows = list(dict.fromkeys(row["how"] for row in rows))
    for i, row in enumerate(rows[::-1]):
        _bar(times, i, row, "median_ms", (GREEN, SKY)[hows.index(row["how"]) % 2], 0.7)
    names = [f"{row['recipe']}, {row['batch']} columns, {row['how']}" for row in rows]
    times.set_yticks(range(len(rows)), names[::-1], fontsize=9)
    times.set_xlabel("ms a step", fontsize=9)
    _room_for_labels(times)
    for i, row in enumerate(compared[::-1]):
        color = (GREEN, SKY)[hows.index(row["how"]) % 2]
        y = i + 0.2 if row["paper_slowdown"] else i
        ratios.barh(y, row["slowdown"], 0.36, color=color, label="here, " + row["how"])
        ratios.annotate(f" {row['slowdown']:.2f}x", (row["slowdown"], y), va="center", fontsize=9)
        if row["paper_slowdown"]:
            ratios.barh(i - 0.2, row["paper_slowdown"], 0.36, color=GREY, hatch="//", label="in the paper")
            ratios.annotate(f" {row['paper_slowdown']:g}x", (row["paper_slowdown"], i - 0.2), va="center", fontsize=9)
    names = [f"{row['recipe']}, {row['how']}" for row in compared]
    ratios.set_yticks(range(len(compared)), names[::-1], fontsize=9)
    ratios.set_xlabel("training time a word over the softmax's", fontsize=9)
    ratios.axvline(1, color=GREY, linewidth=0.8, linestyle=":", zorder=0)
    ratios.set_ylim(-0.6, max(len(compared), 1) - 0.4)
    ratios.margins(x=0.15)
    handles = {label: handle for handle, label in zip(*ratios.get_legend_handles_labels(), strict=True)}
    if handles:
        figure.legend(handles.values(), handles, fontsize=9, loc="outside lower right", ncols=3)
    figure.suptitle(f"Whole training steps on {rows[0]['machine']}" if rows else "Whole training steps", fontsize=11)
    return _save(figure, path)


def _panels(down: int, across: int, width: float, height: float) -> tuple[Any, Any]:
    return pyplot().subplots(down, across, figsize=(width, height), layout="constrained", squeeze=False)


def _bar(
    axis: Any,
    y: float,
    row: Row,
    column: str,
    color: str,
    height: float,
    *,
    light: bool = False,
    quartiles: tuple[str, str] | None = ("q25_ms", "q75_ms"),
) -> None:
    value = max(row[column], 1e-3 if quartiles else 0.5)  # memory of less than a page or two is none
    axis.barh(y, value, height, color=color, alpha=0.45 if light else 1.0, edgecolor=color)
    end = value
    if quartiles:
        low, high = (row[q] for q in quartiles)
        axis.errorbar(value, y, xerr=[[max(value - low, 0)], [max(high - value, 0)]], color="black", linewidth=1)
        end = max(end, high)
    three = f"{value:#.3g}".removesuffix(".")  # 3.50, 21.2
    text = f"{value:,.0f}" if value >= 100 else three if quartiles or value >= 1 else "under 1"
    axis.annotate(text, (end, y), (4, 0), textcoords="offset points", va="center", fontsize=9)


def _room_for_labels(axis: Any) -> None:
    """From zero, as bars should, unless the longest would leave nothing of the shortest; room for the numbers."""
    from matplotlib.ticker import FuncFormatter

    values = [patch.get_width() for patch in axis.patches]
    high = axis.dataLim.x1  # with the error bars
    if values and high > 40 * min(values):
        axis.set_xscale("log")
        low = min(values) / 3
        axis.set_xlim(low, high * (high / low) ** 0.22)
    elif values:
        axis.set_xlim(0, high * 1.25)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.grid(alpha=0.3, axis="x")
    axis.set_axisbelow(True)


def _color(name: str) -> str:
    return GREEN if name.startswith("highrank") else GREY if name.startswith("naive") else BLUE


def _short(value: int) -> str:
    return f"{value / 1000:.3g}k" if value >= 1000 else str(value)


def _save(figure: Any, path: Path) -> list[Path]:
    return save_figure(figure, [path.with_suffix(".png"), path.with_suffix(".svg")])
