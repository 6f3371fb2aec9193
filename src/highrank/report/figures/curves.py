"""Learning curves over epochs and over time: of run folders, and of the longest record of each recipe."""

import itertools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from highrank.data.catalog import Level
from highrank.errors import UserError
from highrank.evaluation.score import bits_per_character
from highrank.files import AnyPath
from highrank.plotting import COLOURS, HEAD_COLOURS, ORANGE, PURPLE, SKY, pyplot
from highrank.recipes import ALL_RECIPES, Recipe
from highrank.report.perplexity import in_paper, runs_of
from highrank.report.records import RecordedRun
from highrank.runs.folder import Run, display_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BY_RECIPE = {  # by the end of the recipe's name
    **HEAD_COLOURS,
    "mos-plus": PURPLE,
    "mos7": HEAD_COLOURS["mos"],
    "mos7-equal": ORANGE,
    "mos10": PURPLE,
}


@dataclass(frozen=True)
class _DrawnCurve:
    label: str
    colour: str
    epochs: list[int]
    seconds: list[float]
    scores: list[float | None]  # None where the loss was not finite
    markers: dict[int | None, str]  # by epoch
    in_paper: float | None = None


def plot_curves(runs: AnyPath | Sequence[AnyPath]) -> "Figure":
    """Draw the validation perplexity (bits per character, for characters) of one run or several, epoch by epoch.

    A dot marks the start of averaging, a triangle the start of finetuning. A run may still be in training.
    """
    folders = [Path(run) for run in ([runs] if isinstance(runs, str | os.PathLike) else runs)]
    if not folders:
        raise UserError("there is no run to draw: name at least one run folder.")
    levels = {Run(folder).info().corpus_level for folder in folders}
    if len(levels) > 1:
        raise UserError(f"the runs have scores of different units ({', '.join(sorted(levels))}): draw them separately.")
    level = levels.pop()
    colours = itertools.cycle(COLOURS)
    labels = display_names(folders)
    curves = [_read_curve(*curve, level) for curve in zip(folders, labels, colours, strict=False)]
    return _draw(curves, level)


def _read_curve(folder: Path, label: str, colour: str, level: Level) -> _DrawnCurve:
    """Read the curve of a run folder."""
    epochs = Run(folder).epochs()
    if not epochs:
        raise UserError(f"{folder} has no curve yet: train it for at least one epoch.")
    averaged = next((metrics.epoch for metrics in epochs if metrics.averaged), None)
    finetuned = [new.epoch for old, new in itertools.pairwise(epochs) if new.stage != old.stage]
    return _DrawnCurve(
        label=label,
        colour=colour,
        epochs=[metrics.epoch for metrics in epochs],
        seconds=[metrics.seconds for metrics in epochs],
        scores=_scores([m.valid_ppl if math.isfinite(m.valid_ppl) else None for m in epochs], level),
        markers={averaged: "o"} | dict.fromkeys(finetuned, "^"),
    )


def learning_curves(corpus: str, runs: list[RecordedRun]) -> "Figure | None":
    """Draw the longest run of each recipe for a corpus, as `plot_curves` does; return None if there is none.

    Dotted lines are the paper's results.
    """
    recipes = [recipe for recipe in ALL_RECIPES.values() if recipe.name.startswith(f"{corpus}-")]
    longest = {recipe: max(runs_of(recipe, runs), key=_length, default=None) for recipe in recipes}
    shown = [(recipe, run.record) for recipe, run in longest.items() if run and _length(run)]
    if not shown:
        return None
    level = shown[0][1].level
    curves = []
    for recipe, record in shown:
        # The paper's dialog models had other training dialogs.
        paper = in_paper(recipe) if isinstance(recipe, Recipe) else None
        finetuned = [stage.epochs + 1 for stage in record.stages[:-1]]
        curves.append(
            _DrawnCurve(
                label=f"{recipe.name}, {record.seconds / 60:.0f} min",
                colour=BY_RECIPE.get(recipe.name.removeprefix(f"{corpus}-"), SKY),
                epochs=record.curve.epoch,
                seconds=record.curve.seconds,
                scores=_scores(record.curve.valid_ppl, level),
                markers={record.averaged_from: "o"} | dict.fromkeys(finetuned, "^"),
                in_paper=paper.valid if paper else None,
            )
        )
    figure = _draw(curves, level)
    lowest = min(score for curve in curves for score in curve.scores if score is not None)
    below, above = (0.99, 1.15) if level == "char" else (0.94, 1.7)
    for axis in figure.axes:
        axis.set(ylim=(lowest * below, lowest * above))  # the first epochs would hide the rest
    return figure


def _draw(curves: list[_DrawnCurve], level: Level) -> "Figure":
    figure, axes = pyplot().subplots(1, 2, figsize=(9.9, 3.8), layout="constrained")
    quantity = "bits per character" if level == "char" else "perplexity"
    for axis, unit in zip(axes, ("epoch", "minute"), strict=True):
        for curve in curves:
            _plot(axis, curve, unit)
            if curve.in_paper is not None:
                axis.axhline(curve.in_paper, color=curve.colour, linestyle=":", linewidth=1.0, alpha=0.8)
        axis.set(xlim=(0, None), xlabel=unit, ylabel=f"validation {quantity}")
        axis.grid(color="#888888", alpha=0.25, linewidth=0.6)
    axes[0].locator_params(axis="x", integer=True)
    axes[0].legend(loc="upper right", fontsize=9)
    return figure


def _plot(axis: Any, curve: _DrawnCurve, unit: str) -> None:
    x = curve.epochs if unit == "epoch" else [seconds / 60 for seconds in curve.seconds]
    triples = zip(curve.epochs, x, curve.scores, strict=True)
    points = {epoch: (position, score) for epoch, position, score in triples if score is not None}
    style = {"marker": "."} if len(points) < 10 else {}  # a line through one point would be invisible
    axis.plot(*zip(*points.values(), strict=True), color=curve.colour, linewidth=1.6, label=curve.label, **style)
    for epoch, marker in curve.markers.items():
        if epoch in points:
            axis.plot(*points[epoch], marker=marker, color=curve.colour, markersize=6)


def _scores(valid_ppl: list[float | None], level: Level) -> list[float | None]:
    """Return the validation score of every epoch; None where the loss was not finite."""
    if level != "char":
        return valid_ppl
    return [None if ppl is None else bits_per_character(ppl) for ppl in valid_ppl]


def _length(run: RecordedRun) -> int:
    """Return the number of epochs with a finite validation perplexity."""
    return sum(perplexity is not None for perplexity in run.record.curve.valid_ppl)
