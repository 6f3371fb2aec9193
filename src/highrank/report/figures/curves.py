"""Figures of the report: learning curves over epochs and over time, perplexity and rank over K."""

from dataclasses import dataclass
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, Any

from highrank.plotting import GREY, HEADS, PURPLE, pyplot
from highrank.recipes import RECIPES
from highrank.report import paper
from highrank.report.perplexity import CORPORA
from highrank.report.rank import K_VALUES, component_analyses, component_study
from highrank.report.records import RecordedAnalysis, RecordedRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DASHES = ("-", "--", "-.", ":")  # tell apart the runs of one head, which share a colour


@dataclass(frozen=True)
class CaptionedFigure:
    """A figure and the sentence that explains it."""

    caption: str
    figure: "Figure"


def report_figures(runs: list[RecordedRun], analyses: list[RecordedAnalysis]) -> dict[str, CaptionedFigure]:
    """Draw the figures for which there are records, by name."""
    figures = {f"curves-{corpus}": learning_curves(corpus, runs) for corpus in CORPORA}
    figures["components"] = components(runs, analyses)
    return {name: figure for name, figure in figures.items() if figure is not None}


def learning_curves(corpus: str, runs: list[RecordedRun]) -> CaptionedFigure | None:
    """Draw validation perplexity over epochs and over minutes, for the runs of a corpus."""
    shown = _runs_to_draw(corpus, runs)
    if not shown:
        return None
    figure, axes = _two_panels()
    styles = _line_styles(shown)
    in_paper = {run.recipe: line for run in shown if (line := _paper_perplexity(run.recipe))}
    lowest = min(*in_paper.values(), *(min(_finite_curve(run)["valid_ppl"]) for run in shown), float("inf"))
    for axis, key, unit in ((axes[0], "epoch", 1), (axes[1], "seconds", 60)):
        for run in shown:
            curve = _finite_curve(run)
            x = [value / unit for value in curve[key]]
            axis.plot(x, curve["valid_ppl"], label=_label(run), **styles[run.file])
            for epoch, marker in _markers(run).items():
                if epoch in curve["epoch"]:
                    i = curve["epoch"].index(epoch)
                    colour = styles[run.file]["color"]
                    axis.plot(x[i], curve["valid_ppl"][i], marker=marker, color=colour, markersize=6, linestyle="")
        for recipe, perplexity in in_paper.items():
            axis.axhline(perplexity, color=_colour(recipe), linestyle=":", linewidth=1.0, alpha=0.8)
        axis.set(yscale="log", ylim=(lowest * 0.94, lowest * 1.7), xlim=(0, None), ylabel="validation perplexity")
        _use_plain_ticks(axis, lowest)
    axes[0].set(xlabel="epoch", title="over epochs")
    axes[1].set(xlabel="minutes of training", title="over wall time")
    axes[0].legend(loc="upper right", fontsize=9)
    caption = (
        f"{CORPORA[corpus]}: validation perplexity during training. A dot marks the start of averaging, a triangle "
        "the start of finetuning; dotted lines are the paper's, after complete schedules without finetuning."
    )
    return CaptionedFigure(caption, figure)


def components(runs: list[RecordedRun], analyses: list[RecordedAnalysis]) -> CaptionedFigure | None:
    """Draw test perplexity and rank over K, the paper's and ours."""
    study = component_study(runs)
    epochs = next((run.record.epochs for run in study.values()), None)
    ranks = {k: analysis.model.rank for k, analysis in component_analyses(analyses, epochs).items()}
    if len(study) < 2 and len(ranks) < 2:
        return None
    figure, axes = _two_panels()
    perplexities = {k: run.record.test_ppl for k, run in study.items()}
    for axis, ours, part in ((axes[0], perplexities, "test"), (axes[1], ranks, "rank")):
        in_paper = [getattr(values, part) for values in paper.COMPONENTS.values()]
        axis.plot(list(paper.COMPONENTS), in_paper, color=GREY, marker="s", linestyle=":", label="the paper")
        if ours:
            axis.plot(*zip(*sorted(ours.items()), strict=True), color=HEADS["mos"], marker="o", label="ours")
        axis.set(xlabel="K, the number of softmaxes", xticks=K_VALUES)
        axis.legend(fontsize=9)
    axes[0].set(ylabel="test perplexity", title="perplexity")
    axes[1].set(ylabel="rank", title="rank of the log-probabilities", xlim=axes[0].get_xlim())
    axes[1].yaxis.set_major_formatter("{x:,.0f}")
    training = f" after {epochs} epochs each" if epochs else ""
    caption = f"Penn Treebank: perplexity and rank over K; ours{training}, the paper's after complete schedules."
    return CaptionedFigure(caption, figure)


def _runs_to_draw(corpus: str, runs: list[RecordedRun]) -> list[RecordedRun]:
    """Return the runs of a corpus, without those that would repeat a curve or could not be seen beside the others."""
    shown = [r for r in runs if r.recipe.startswith(f"{corpus}-") and r.has_recipe_model and _finite_curve(r)["epoch"]]
    study = {run.file for run in component_study(runs).values()}
    shown = [run for run in shown if run.file not in study] or shown  # the study over K has a figure of its own
    longest: dict[str, int] = {}
    for run in shown:
        longest[run.recipe] = max(run.record.epochs, longest.get(run.recipe, 0))
    shown = [run for run in shown if run.record.epochs > longest[run.recipe] / 10]
    return [run for run in shown if not any(_continues(other, run) for other in shown)]


def _finite_curve(run: RecordedRun) -> dict[str, list[Any]]:
    """Return the epochs of a curve that have a finite validation perplexity."""
    curve = run.record.curve
    finite = [i for i, perplexity in enumerate(curve.valid_ppl) if perplexity is not None]
    return {key: [getattr(curve, key)[i] for i in finite] for key in ("epoch", "seconds", "valid_ppl")}


def _continues(later: RecordedRun, earlier: RecordedRun) -> bool:
    """Return whether `later` is the same run after more training, and its curve contains the earlier one."""
    same_run = later.record.provenance.started == earlier.record.provenance.started
    return same_run and set(_finite_curve(later)["epoch"]) > set(_finite_curve(earlier)["epoch"])


def _markers(run: RecordedRun) -> dict[int, str]:
    """Return the epochs to mark: "o" where averaging starts, "^" where finetuning starts."""
    record = run.record
    markers = {}
    if record.averaged_from is not None:
        markers[record.averaged_from] = "o"
        for piece, following in pairwise(record.pieces):
            restarts = piece.exported is not None and piece.exported.averages_only
            if restarts and following.epoch >= record.averaged_from:
                markers[following.epoch + 1] = "o"
    return markers | {stage.epochs + 1: "^" for stage in record.stages[:-1]}


def _paper_perplexity(recipe: str) -> float | None:
    results = RECIPES[recipe].paper if recipe in RECIPES else ()
    return next((result.valid for result in results if not result.finetuned), None)


def _use_plain_ticks(axis: "Axes", lowest: float) -> None:
    """Label a logarithmic axis 60, 65, 70 ... instead of with powers of ten."""
    from matplotlib import ticker

    step = 5 if lowest < 100 else 20
    first = int(lowest * 0.94) // step * step
    ticks = [float(tick) for tick in range(first, int(lowest * 1.7) + step, step)]
    axis.yaxis.set_major_locator(ticker.FixedLocator(ticks))
    axis.yaxis.set_major_formatter(ticker.FormatStrFormatter("%d"))
    axis.yaxis.set_minor_locator(ticker.NullLocator())


def _two_panels() -> tuple["Figure", list["Axes"]]:
    figure, axes = pyplot().subplots(1, 2, figsize=(9.9, 3.8), layout="constrained")
    for axis in axes:
        axis.grid(color="#888888", alpha=0.25, linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, list(axes)


def _line_styles(runs: list[RecordedRun]) -> dict[str, dict[str, Any]]:
    """Return a colour per head, and dashes that differ between the runs of one head."""
    dashes = {_colour(run.recipe): cycle(DASHES) for run in runs}
    styles = {}
    for run in runs:
        colour = _colour(run.recipe)
        styles[run.file] = {"color": colour, "linestyle": next(dashes[colour]), "linewidth": 1.6}
    return styles


def _colour(recipe: str) -> str:
    _, head = recipe.split("-", 1)
    return HEADS.get(head, PURPLE)


def _label(run: RecordedRun) -> str:
    changes = "".join(f", {key.removeprefix('train.')}={value}" for key, value in run.changes.items())
    return f"{run.recipe}{changes}, {run.record.seconds / 60:.0f} min"
