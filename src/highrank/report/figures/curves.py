"""Learning curves of the longest run of each recipe, over epochs and over time."""

from typing import TYPE_CHECKING, Any

from highrank.evaluation.score import bits_per_character
from highrank.plotting import HEADS, ORANGE, PURPLE, SKY, pyplot
from highrank.recipes import ALL_RECIPES, Recipe
from highrank.report.perplexity import in_paper, runs_of
from highrank.report.records import RecordedRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {  # by the end of the recipe's name
    **HEADS,
    "mos-plus": PURPLE,
    "mos7": HEADS["mos"],
    "mos7-equal": ORANGE,
    "mos10": PURPLE,
}


def learning_curves(corpus: str, runs: list[RecordedRun]) -> "Figure | None":
    """Draw validation perplexity, or bits per character, for a corpus; return None if it has no runs.

    A dot marks the start of averaging, a triangle the start of finetuning. Dotted lines are the paper's results.
    """
    recipes = [recipe for recipe in ALL_RECIPES.values() if recipe.name.startswith(f"{corpus}-")]
    longest = {recipe: max(runs_of(recipe, runs), key=_length, default=None) for recipe in recipes}
    shown = [(recipe, run) for recipe, run in longest.items() if run and _length(run)]
    if not shown:
        return None
    figure, axes = pyplot().subplots(1, 2, figsize=(9.9, 3.8), layout="constrained")
    quantity = "bits per character" if _is_char(shown[0][1]) else "perplexity"
    lowest = min(score for _, run in shown for score in _scores(run) if score is not None)
    for axis, unit in zip(axes, ("epoch", "minute"), strict=True):
        for recipe, run in shown:
            colour = COLOURS.get(recipe.name.removeprefix(f"{corpus}-"), SKY)
            _plot_run(axis, run, unit, color=colour, label=f"{recipe.name}, {run.record.seconds / 60:.0f} min")
            # The paper's dialog models had other training dialogs.
            if isinstance(recipe, Recipe) and (numbers := in_paper(recipe)):
                axis.axhline(numbers.valid, color=colour, linestyle=":", linewidth=1.0, alpha=0.8)
        axis.set(ylim=(lowest * 0.94, lowest * 1.7), xlim=(0, None), xlabel=unit, ylabel=f"validation {quantity}")
        axis.grid(color="#888888", alpha=0.25, linewidth=0.6)
    axes[0].legend(loc="upper right", fontsize=9)
    return figure


def _plot_run(axis: Any, run: RecordedRun, unit: str, color: str, label: str) -> None:
    curve = run.record.curve
    x = curve.epoch if unit == "epoch" else [seconds / 60 for seconds in curve.seconds]
    scores = _scores(run)
    points = {epoch: (x[i], scores[i]) for i, epoch in enumerate(curve.epoch) if scores[i] is not None}
    axis.plot(*zip(*points.values(), strict=True), color=color, linewidth=1.6, label=label)
    markers = {run.record.averaged_from: "o"} | {stage.epochs + 1: "^" for stage in run.record.stages[:-1]}
    for epoch, marker in markers.items():
        if epoch in points:
            axis.plot(*points[epoch], marker=marker, color=color, markersize=6)


def _scores(run: RecordedRun) -> list[float | None]:
    """Return the validation score of every epoch; None where the loss was not finite."""
    valid_ppl = run.record.curve.valid_ppl
    if not _is_char(run):
        return valid_ppl
    return [None if ppl is None else bits_per_character(ppl) for ppl in valid_ppl]


def _is_char(run: RecordedRun) -> bool:
    return run.record.settings["data"].get("level") == "char"


def _length(run: RecordedRun) -> int:
    """Return the number of epochs with a finite validation perplexity."""
    return sum(perplexity is not None for perplexity in run.record.curve.valid_ppl)
