"""The picture of a comparison: the gain by group, with two standard errors each way."""

from pathlib import Path
from typing import Any

from highrank.analysis.compare import Comparison
from highrank.plotting import BLUE, VERMILLION, pyplot, save_figure
from highrank.report.comparison.words import Grouping, groupings, title, token

# Okabe and Ito's blue and vermilion, told apart by every kind of colour vision; the marker tells as well.
AHEAD, BEHIND = (BLUE, "o"), (VERMILLION, "s")


def draw(files: list[Path], c: Comparison) -> None:
    """The figure, in the format of each file's ending."""
    plt = pyplot()
    word, pair, before = groupings(c)
    layout: Any = [["word", "before"], ["pair", "before"]] if before.groups else [["word"], ["pair"]]
    rows = max(len(word.groups) + len(pair.groups) + 4, len(before.groups))  # 4: titles and scales in between
    figure, axes = plt.subplot_mosaic(layout, figsize=(5.5 * len(layout[0]), 1.8 + 0.27 * rows), layout="constrained")
    for name, table in (("word", word), ("pair", pair), ("before", before)):
        if table.groups:
            _panel(axes[name], table)
    handles = [
        plt.Line2D([], [], color=colour, marker=marker, linestyle="", label=f"{side.name} is better")
        for side, (colour, marker) in ((c.a, AHEAD), (c.b, BEHIND))
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle(f"{title(c)}: gain by group, ± 2 standard errors", parse_math=False)
    save_figure(figure, files)


def _panel(axis: Any, table: Grouping) -> None:
    for row, group in enumerate(table.groups):
        colour, marker = AHEAD if group.gain > 0 else BEHIND
        axis.errorbar(
            group.gain, row, xerr=2 * (group.gain_se or 0.0), color=colour, marker=marker, markersize=5, capsize=2
        )
    axis.axvline(0, color="black", linewidth=0.8)
    labels = [f"{token(group.name)}  ({group.steps:,})" for group in table.groups]
    axis.set_yticks(range(len(labels)), labels, parse_math=False)
    axis.set_ylim(len(labels) - 0.4, -0.6)  # in the order of the tables
    axis.grid(axis="x", alpha=0.3)
    axis.set_title(table.title, fontsize=11)
    axis.set_xlabel("gain, nats a token")
