"""The laboratory's two pictures: attainable KL against D, and the rank of what was fitted against D."""

import functools
from pathlib import Path
from typing import Any

from highrank.analysis.finite_language.bounds import Ranks
from highrank.analysis.finite_language.sweep import KINDS, Point
from highrank.files import write_with
from highrank.plotting import HEADS, PURPLE, pyplot

# Okabe and Ito's palette, told apart by every kind of colour vision; dashes help in print.
STYLES = {
    "softmax": {"color": HEADS["softmax"], "linestyle": "-"},
    "moc": {"color": HEADS["moc"], "linestyle": "--"},
    "mos": {"color": HEADS["mos"], "linestyle": "-"},
    "control": {"color": "#666666", "linestyle": ":"},
}
MARKERS = {"softmax": "o", "moc": "s", "mos": "^"}
ROUND_OFF = 1e-16  # where an exact model is drawn
ENDINGS = (".png", ".svg")


def draw(folder: Path, points: list[Point], ranks: Ranks, bias: bool, title: str) -> list[Path]:
    """Write kl and rank as PNG and SVG; the paths written."""
    from matplotlib.ticker import MaxNLocator

    plt = pyplot()
    written = []
    with plt.rc_context({"svg.hashsalt": "highrank"}):  # the same figure gives the same file
        for stem, picture in (("kl", _kl), ("rank", _rank)):
            figure, axis = plt.subplots(figsize=(7.5, 4.8), layout="constrained")
            picture(axis, points, ranks, bias)
            axis.set_xlabel("embedding size D")
            axis.set_title(title, fontsize=10)
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
            axis.grid(alpha=0.3)
            figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
            for ending in ENDINGS:
                path = folder / (stem + ending)
                metadata = {"Date": None} if ending == ".svg" else None
                write_with(path, functools.partial(figure.savefig, dpi=120, metadata=metadata))
                written.append(path)
            plt.close(figure)
    return written


def _kl(axis: Any, points: list[Point], ranks: Ranks, bias: bool) -> None:
    for kind in KINDS:
        mine = [p for p in points if p.kind == kind]
        dims = [p.fit.embed_dim for p in mine]
        style = {**STYLES[kind], "marker": MARKERS[kind], "markersize": 5}
        if kind == "moc":  # drawn over Softmax, which it equals
            style |= {"markerfacecolor": "none", "markersize": 8}
        axis.plot(dims, [max(p.fit.kl, ROUND_OFF) for p in mine], label=f"{mine[0].fit.name}, best found", **style)
        exact = [p for p in mine if p.constructed is not None]
        if exact and kind != "moc":
            axis.plot(
                [p.fit.embed_dim for p in exact],
                [ROUND_OFF] * len(exact),
                linestyle="none",
                marker="*",
                markersize=11 if kind == "softmax" else 7,
                markerfacecolor="none" if kind == "softmax" else STYLES[kind]["color"],
                color=STYLES[kind]["color"],
                label=f"{mine[0].fit.name}, exact by construction",
            )
    floors = [(p.fit.embed_dim, p.floor) for p in points if p.kind == "softmax" and p.floor]
    if floors:
        where, values = zip(*floors, strict=True)
        axis.fill_between(where, values, ROUND_OFF / 3, color=STYLES["softmax"]["color"], alpha=0.12, linewidth=0)
        axis.plot(where, values, color=STYLES["softmax"]["color"], linewidth=0.8, label="no Softmax or MoC below this")
    _mark(axis, ranks, bias)
    axis.set(yscale="log", ylabel="KL to the truth (nats)")
    axis.set_ylim(bottom=ROUND_OFF / 3)
    axis.legend(fontsize=8, loc="center left", bbox_to_anchor=(0.0, 0.42))


def _rank(axis: Any, points: list[Point], ranks: Ranks, bias: bool) -> None:
    for kind in KINDS:
        mine = [p for p in points if p.kind == kind]
        style = {**STYLES[kind], "marker": MARKERS[kind], "markersize": 5}
        if kind == "moc":
            style |= {"markerfacecolor": "none", "markersize": 8}
        axis.plot([p.fit.embed_dim for p in mine], [p.fit.rank for p in mine], label=mine[0].fit.name, **style)
    axis.axhline(ranks.a, color="black", linewidth=0.8, linestyle="-.", label=f"the truth: rank(A) = {ranks.a}")
    _mark(axis, ranks, bias)
    axis.set(ylabel="rank of log Q of the fitted model")
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=8, loc="center left", bbox_to_anchor=(0.0, 0.72))


def _mark(axis: Any, ranks: Ranks, bias: bool) -> None:
    axis.axvline(ranks.a - 1, color=PURPLE, linewidth=1.5, linestyle=":", label=f"rank(A) - 1 = {ranks.a - 1}")
    enough = ranks.enough(bias)
    if enough != ranks.a - 1:
        axis.axvline(enough, color="#555555", linewidth=1.2, linestyle=":", label=f"enough for a Softmax: {enough}")
