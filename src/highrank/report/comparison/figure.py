"""The picture of a comparison: the gain by group, with two standard errors each way."""

from pathlib import Path
from typing import Any

from highrank.analysis.bands import Group
from highrank.analysis.compare import Comparison
from highrank.files import write_with
from highrank.report.comparison.words import previous_rows, title, token

# Okabe and Ito's blue and vermilion, told apart by every kind of colour vision; the marker tells as well.
AHEAD, BEHIND = ("#0072B2", "o"), ("#D55E00", "s")


def draw(files: list[Path], c: Comparison) -> None:
    """The figure, in the format of each file's ending."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    previous = previous_rows(c)
    layout: Any = [["word", "before"], ["pair", "before"]] if previous else [["word"], ["pair"]]
    rows = max(len(c.by_frequency) + len(c.by_pair) + 4, len(previous))  # 4: the titles and scales in between
    figure, axes = plt.subplot_mosaic(layout, figsize=(5.5 * len(layout[0]), 1.8 + 0.27 * rows), layout="constrained")
    _panel(axes["word"], c.by_frequency, "How often the word was seen in training")
    _panel(axes["pair"], c.by_pair, "How often it was seen after the word before it")
    if previous:
        _panel(axes["before"], previous, "The word before")
    handles = [
        plt.Line2D([], [], color=colour, marker=marker, linestyle="", label=f"{side.name} is better")
        for side, (colour, marker) in ((c.a, AHEAD), (c.b, BEHIND))
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle(f"{title(c)}: gain by group, ± 2 standard errors", parse_math=False)
    for file in files:
        write_with(file, lambda temporary: figure.savefig(temporary, dpi=130))
    plt.close(figure)


def _panel(axis: Any, groups: list[Group], name: str) -> None:
    rows = range(len(groups))
    for row, group in zip(rows, groups, strict=True):
        colour, marker = AHEAD if group.gain > 0 else BEHIND
        axis.errorbar(
            group.gain, row, xerr=2 * (group.gain_se or 0.0), color=colour, marker=marker, markersize=5, capsize=2
        )
    axis.axvline(0, color="black", linewidth=0.8)
    labels = [f"{token(group.name)}  ({group.steps:,})" for group in groups]
    axis.set_yticks(rows, labels, parse_math=False)
    axis.invert_yaxis()  # in the order of the tables
    axis.grid(axis="x", alpha=0.3)
    axis.set_title(name, fontsize=11)
    axis.set_xlabel("gain, nats a token")
