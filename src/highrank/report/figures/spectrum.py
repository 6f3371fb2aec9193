"""The paper's spectrum figure (appendix C.1): the share of normalised singular values below a threshold, log scale."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from highrank.plotting import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION, pyplot, save_figure

# Okabe and Ito's palette, told apart by every kind of colour vision; dashes help in print.
COLOURS = (BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY, BLACK)
DASHES = ("-", "--", "-.", ":")
BY_HEAD = {"softmax": (COLOURS[0], "-"), "moc": (COLOURS[1], "--"), "mos": (COLOURS[2], "-")}
GREY: dict[str, Any] = {"color": "#999999", "alpha": 0.15, "linewidth": 0}
FLOOR = 1e-19  # what is smaller is drawn here: zeros have no place on a log scale


@dataclass(frozen=True)
class Curve:
    """One model's spectrum, as `spectrum_json` keeps it."""

    label: str
    head: str
    index: Sequence[int]  # from 1, largest singular value first
    values: Sequence[float]
    total: int  # singular values there are, min(T, V); more than the last index where projected
    round_off: float | None  # tolerance / largest value

    def points(self) -> tuple[list[float], list[float]]:
        """Normalised singular values, and the percentage of all that lie below each."""
        largest = self.values[0]
        pairs = zip(self.index, self.values, strict=True)
        points = [(max(value / largest, FLOOR), 100 * (self.total - i) / self.total) for i, value in pairs]
        return [x for x, _ in points], [y for _, y in points]


def draw(folder: Path, curves: Sequence[Curve], title: str) -> list[Path]:
    """spectrum.png and spectrum.svg."""
    many = len(curves) > 4  # their legend would cover the curves
    figure, axis = pyplot().subplots(figsize=(10 if many else 7.5, 4.8), layout="constrained")
    for curve, (colour, dash) in zip(curves, _styles(curves), strict=True):
        on_top = 2 if dash == "-" else 3  # broken lines let one see what runs under them
        axis.plot(*curve.points(), color=colour, linestyle=dash, linewidth=2, label=curve.label, zorder=on_top)
    _mark_round_off(axis, curves)
    axis.set(
        xscale="log",
        xlabel="normalised singular value (1 is the model's largest)",
        ylabel="singular values below it, %",
        ylim=(-2, 102),
        title=title,
    )
    axis.grid(alpha=0.3)
    if many:
        figure.legend(loc="outside right center")
    else:
        axis.legend()
    return _save(folder, figure)


def draw_use(folder: Path, spectra: dict[str, dict[str, list[float]]], round_off: float, title: str) -> list[Path]:
    """Singular values by index, each spectrum over its largest: what a softmax model says, and its output matrix."""
    figure, axis = pyplot().subplots(figsize=(7.5, 4.8), layout="constrained")
    for i, (label, spectrum) in enumerate(spectra.items()):
        values = [max(value / spectrum["values"][0], FLOOR) for value in spectrum["values"]]
        axis.plot(spectrum["index"], values, color=COLOURS[i], linestyle=DASHES[i], linewidth=2, label=label)
    axis.axhspan(FLOOR / 10, round_off, label="round-off: counts as zero", **GREY)
    lowest = min(min(spectrum["values"]) / spectrum["values"][0] for spectrum in spectra.values())
    axis.set(yscale="log", xlabel="index", ylabel="singular value / largest", title=title)
    axis.set_ylim(bottom=max(FLOOR, min(round_off, lowest)) / 3, top=2)
    axis.grid(alpha=0.3)
    axis.legend()
    return _save(folder, figure)


def _save(folder: Path, figure: Any) -> list[Path]:
    return save_figure(figure, [folder / "spectrum.png", folder / "spectrum.svg"], dpi=150)


def _mark_round_off(axis: Any, curves: Sequence[Curve]) -> None:
    known = [curve.round_off for curve in curves if curve.round_off]
    if known:
        axis.axvspan(FLOOR / 10, max(known), label="round-off: counts as zero", **GREY)
        axis.set_xlim(left=max(FLOOR / 3, min(min(curve.points()[0]) for curve in curves) / 3), right=2)


def _styles(curves: Sequence[Curve]) -> list[tuple[str, str]]:
    """A head keeps its colour as long as it appears once; several models with one head are told apart in order."""
    heads = [curve.head for curve in curves]
    if len(set(heads)) == len(heads) and set(heads) <= BY_HEAD.keys():
        return [BY_HEAD[head] for head in heads]
    return [(COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)]) for i in range(len(heads))]
