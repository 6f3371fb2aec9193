"""The figure of a comparison: gains by group, with two standard errors each way."""

from typing import TYPE_CHECKING, Any

from highrank.analysis.compare import Comparison
from highrank.plotting import BLUE, VERMILLION, pyplot
from highrank.report.comparison_text import Grouping, groupings, title, visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The marker repeats what the colour says, for print.
A_AHEAD, B_AHEAD = (BLUE, "o"), (VERMILLION, "s")


def plot_gains(c: Comparison) -> "Figure":
    """Plot the gains of each grouping: counts of the word, counts of the pair, previous words."""
    plt = pyplot()
    word, pair, previous = groupings(c)
    layout: Any = [["word", "previous"], ["pair", "previous"]] if previous.groups else [["word"], ["pair"]]
    rows = max(len(word.groups) + len(pair.groups) + 4, len(previous.groups))  # 4: room for titles and scales
    figure, axes = plt.subplot_mosaic(layout, figsize=(5.5 * len(layout[0]), 1.8 + 0.27 * rows), layout="constrained")
    for name, grouping in (("word", word), ("pair", pair), ("previous", previous)):
        if grouping.groups:
            _plot_grouping(axes[name], grouping)
    handles = [
        plt.Line2D([], [], color=colour, marker=marker, linestyle="", label=f"{side.name} is better")
        for side, (colour, marker) in ((c.a, A_AHEAD), (c.b, B_AHEAD))
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle(f"{title(c)}: gain by group, ± 2 standard errors", parse_math=False)
    return figure


def _plot_grouping(axis: Any, grouping: Grouping) -> None:
    for row, group in enumerate(grouping.groups):
        colour, marker = A_AHEAD if group.gain > 0 else B_AHEAD
        axis.errorbar(
            group.gain, row, xerr=2 * (group.gain_se or 0.0), color=colour, marker=marker, markersize=5, capsize=2
        )
    axis.axvline(0, color="black", linewidth=0.8)
    labels = [f"{visible(group.name)}  ({group.steps:,})" for group in grouping.groups]
    axis.set_yticks(range(len(labels)), labels, parse_math=False)
    axis.set_ylim(len(labels) - 0.4, -0.6)  # first row on top, as in the tables
    axis.locator_params(axis="x", nbins=6)  # so that numbers do not touch
    axis.grid(axis="x", alpha=0.3)
    axis.set_title(grouping.title, fontsize=11)
    axis.set_xlabel("gain, nats per token")
