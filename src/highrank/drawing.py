"""What every figure needs: matplotlib without a screen, and a file for each format."""

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from highrank.files import write_with

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def pyplot() -> ModuleType:
    """matplotlib.pyplot, imported when it is needed (it takes a while), for drawing to files."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def save_figure(figure: "Figure", files: Iterable[Path], dpi: int = 130) -> list[Path]:
    """Write the figure in the format of each file's ending, and close it; returns the files."""
    files = list(files)
    layout: Any = figure.get_layout_engine()
    if layout is not None:
        layout.set(w_pad=0.08, h_pad=0.08)  # inches: nothing touches the edge
    for file in files:
        write_with(file, lambda temporary: figure.savefig(temporary, dpi=dpi))
    pyplot().close(figure)
    return files
