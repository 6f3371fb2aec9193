"""Shared plotting code: matplotlib, one colour palette, and figures saved in several formats."""

import warnings
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from highrank.files import write_with

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette, readable with any colour vision. A head keeps its colour everywhere.
BLUE, ORANGE, GREEN, VERMILLION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, BLACK, GREY = "#CC79A7", "#56B4E9", "#000000", "#777777"
COLOURS = (BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY, BLACK)  # of curves without one of their own
HEAD_COLOURS = {"softmax": BLUE, "moc": ORANGE, "mos": GREEN}


def pyplot() -> ModuleType:
    """Import matplotlib.pyplot on first use: the import is slow."""
    from matplotlib import pyplot

    return pyplot


def save_figure(figure: "Figure", files: Iterable[Path], dpi: int = 130) -> list[Path]:
    """Write the figure to each file, in the format of its suffix; close the figure and return the files."""
    files = list(files)
    layout: Any = figure.get_layout_engine()
    if layout is not None:
        layout.set(w_pad=0.08, h_pad=0.08)  # inches
    for file in files:
        # Without the date and with fixed ids, the same figure gives the same SVG.
        metadata = {"Date": None} if file.suffix == ".svg" else None
        with pyplot().rc_context({"svg.hashsalt": "highrank"}), warnings.catch_warnings():
            # Words of a corpus may be in a script that matplotlib's font lacks: one warning per character.
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            write_with(file, partial(figure.savefig, dpi=dpi, metadata=metadata))
    pyplot().close(figure)
    return files
