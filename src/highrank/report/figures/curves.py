"""Figures of the report: how each run learned, over epochs and over minutes; K; singular values.

Each is a matplotlib figure, written as PNG and SVG, and put into the page as SVG whose colours follow its theme.
"""

import io
from collections.abc import Callable
from itertools import cycle, pairwise
from math import isfinite
from typing import Any

from highrank.plotting import GREY, HEADS, PURPLE, pyplot
from highrank.recipes import RECIPES
from highrank.report import paper
from highrank.report.components import ASKED, of_components, quality, study
from highrank.report.records import Analysis, Record

# Okabe and Ito's palette, told apart by every kind of colour vision; dashes tell apart the runs of one head.
COLOURS = {**HEADS, "other": PURPLE, "paper": GREY}
DASHES = ("-", "--", "-.", ":")
CORPORA = {"ptb": "Penn Treebank", "wt2": "WikiText-2"}

Figure = Any  # matplotlib's, imported where it is used


def figures(records: list[Record], analyses: list[Analysis]) -> dict[str, tuple[str, Figure]]:
    """Name -> what it shows and the figure; only those that there is something to show in."""
    made = {f"curves-{prefix}": _learning(prefix, records) for prefix in CORPORA}
    made["components"] = _components(records, analyses)
    made["spectrum"] = _spectrum(analyses)
    return {name: one for name, one in made.items() if one is not None}


def _learning(prefix: str, records: list[Record]) -> tuple[str, Figure] | None:
    shown = [r for r in records if r.recipe.startswith(f"{prefix}-") and r.same_model and _curve(r)]
    over_k = {record.file for record in study(records).values()}  # they have a figure of their own
    shown = [r for r in shown if r.file not in over_k] or shown
    if not shown:
        return None
    longest = {r.recipe: max(other.data["epochs"] for other in shown if other.recipe == r.recipe) for r in shown}
    shown = [r for r in shown if r.data["epochs"] > longest[r.recipe] / 10]  # a few epochs tell nothing beside hundreds
    shown = [r for r in shown if not any(_goes_on(r, other) for other in shown)]
    figure, axes = _panels(2)
    styles = _styles(shown)
    reached = min(min(_curve(record)["valid_ppl"]) for record in shown)
    least = min([reached, *(line for record in shown if (line := _printed(record.recipe)))])
    for axis, key, per in zip(axes, ("epoch", "seconds"), (1, 60), strict=True):
        for record in shown:
            curve = _curve(record)
            x = [value / per for value in curve[key]]
            axis.plot(x, curve["valid_ppl"], label=_name(record), **styles[record.file])
            _mark(axis, record, x, curve["valid_ppl"], styles[record.file]["color"])
        for recipe in dict.fromkeys(record.recipe for record in shown):
            if line := _printed(recipe):
                axis.axhline(line, color=_colour(recipe), linestyle=":", linewidth=1.0, alpha=0.8)
        axis.set(yscale="log", ylim=(least * 0.94, least * 1.7), xlim=(0, None), ylabel="validation perplexity")
        _plain_ticks(axis, least)
    axes[0].set(xlabel="epoch", title="over epochs")
    axes[1].set(xlabel="minutes of training", title="over wall time")
    axes[0].legend(loc="upper right", fontsize=9)
    text = (
        f"{CORPORA[prefix]}: validation perplexity while training. A dot marks where averaging starts, a triangle "
        "where finetuning does; dotted lines are the paper's, after whole schedules without finetuning."
    )
    return text, figure


def _components(records: list[Record], analyses: list[Analysis]) -> tuple[str, Figure] | None:
    found = study(records)
    trained = next((record.data["epochs"] for record in found.values()), None)
    ranks = {k: one.model["rank"] for k, one in of_components(analyses, trained).items()}
    if len(found) < 2 and len(ranks) < 2:
        return None
    figure, axes = _panels(2)
    ours = {"color": COLOURS["mos"], "marker": "o", "label": "ours"}
    theirs = {"color": COLOURS["paper"], "marker": "s", "linestyle": ":", "label": "the paper"}
    for axis, mine, part in (
        (axes[0], {k: r.data["test_ppl"] for k, r in found.items()}, "test"),
        (axes[1], ranks, "rank"),
    ):
        axis.plot(*zip(*((k, getattr(v, part)) for k, v in paper.COMPONENTS.items()), strict=True), **theirs)
        if mine:
            axis.plot(*zip(*sorted(mine.items()), strict=True), **ours)
        axis.set(xlabel="K, the number of softmaxes", xticks=ASKED)
        axis.legend(fontsize=9)
    axes[0].set(ylabel="test perplexity", title="perplexity")
    axes[1].set(ylabel="rank", title="rank of the log-probabilities", xlim=axes[0].get_xlim())
    axes[1].yaxis.set_major_formatter("{x:,.0f}")
    epochs = next((f" after {record.data['epochs']} epochs each" for record in found.values()), "")
    return f"Penn Treebank: perplexity and rank over K; ours{epochs}, the paper's after whole schedules.", figure


def _spectrum(analyses: list[Analysis]) -> tuple[str, Figure] | None:
    """One model a head, the best there is, on the test set where that was analysed."""
    chosen: dict[str, Analysis] = {}
    for one in sorted(analyses, key=quality):
        usual = RECIPES.get(one.model["recipe"])
        as_usual = usual and one.model.get("n_components") == usual.model.n_components
        values = (one.model.get("spectrum") or {}).get("values", [])
        if as_usual and any(values) and one.model["recipe"].startswith("ptb-"):  # a log scale has no zero
            chosen.setdefault(one.model["recipe"], one)
    if not chosen:
        return None
    figure, (axis,) = _panels(1)
    for name, one in chosen.items():
        spectrum = one.model["spectrum"]
        largest = max(spectrum["values"])
        label = f"{name}: rank {'at least ' if one.at_least else ''}{one.model['rank']:,}"
        axis.plot(spectrum["index"], [v / largest for v in spectrum["values"]], color=_colour(name), label=label)
    axis.set(xscale="log", yscale="log", xlabel="index", ylabel="singular value / largest")
    axis.legend(fontsize=9)
    split = next(iter(chosen.values())).split
    return f"Penn Treebank, {split}: singular values of the matrix of log-probabilities.", figure


def _panels(count: int) -> tuple[Figure, list[Any]]:
    figure, axes = pyplot().subplots(1, count, figsize=(4.95 * count, 3.8), layout="constrained", squeeze=False)
    for axis in axes[0]:
        axis.grid(color="#888888", alpha=0.25, linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, list(axes[0])


def _curve(record: Record) -> dict[str, list[float]]:
    """The points of a record's curve that are numbers: a loss that is not finite is written as a word."""
    curve = record.data.get("curve") or {}
    if not curve.get("valid_ppl"):
        return {}
    good = [i for i, value in enumerate(curve["valid_ppl"]) if isinstance(value, int | float) and isfinite(value)]
    return {key: [curve[key][i] for i in good] for key in ("epoch", "seconds", "valid_ppl")} if good else {}


def _goes_on(record: Record, other: Record) -> bool:
    """Whether `other` is the same run after more training, and its curve holds all of this one's."""
    started, epochs = record.data["provenance"].get("started"), _curve(record)["epoch"]
    same = started is not None and started == other.data["provenance"].get("started")
    return same and len(_curve(other)["epoch"]) > len(epochs) and set(epochs) <= set(_curve(other)["epoch"])


def _mark(axis: Any, record: Record, x: list[float], y: list[float], colour: str) -> None:
    epochs = _curve(record)["epoch"]
    places = dict.fromkeys(_averaging_starts(record), "o")
    ended = record.data.get("stages", [])[:-1]
    places |= {stage["epochs"] + 1: "^" for stage in ended}  # where averages start anew, too
    for epoch, marker in places.items():
        if epoch in epochs:
            i = epochs.index(epoch)
            axis.plot([x[i]], [y[i]], marker=marker, color=colour, markersize=6, linestyle="")


def _averaging_starts(record: Record) -> list[int]:
    """The first epoch of averages, and those of pieces that went on from averages alone: there they start anew."""
    first, pieces = record.data.get("averaged_from"), record.data.get("pieces") or []
    if first is None:
        return []
    anew = [
        after["epoch"] + 1 for piece, after in pairwise(pieces) if (piece.get("exported") or {}).get("averages_only")
    ]
    return [first, *(epoch for epoch in anew if epoch > first)]


def _printed(recipe: str) -> float | None:
    """The paper's validation perplexity, without finetuning."""
    known = RECIPES.get(recipe)
    return next((p.valid for p in known.paper if not p.finetuned), None) if known else None


def _plain_ticks(axis: Any, least: float) -> None:
    """58, 60, 65 ... instead of powers of ten."""
    from matplotlib import ticker

    step = 5 if least < 100 else 20
    low, high = int(least * 0.94) // step * step, int(least * 1.7)
    axis.yaxis.set_major_locator(ticker.FixedLocator([float(y) for y in range(low, high + step, step)]))
    axis.yaxis.set_major_formatter(ticker.FormatStrFormatter("%d"))
    axis.yaxis.set_minor_locator(ticker.NullLocator())


def _styles(records: list[Record]) -> dict[str, dict[str, Any]]:
    dashes: dict[str, Any] = {}
    styles = {}
    for record in records:
        colour = _colour(record.recipe)
        styles[record.file] = {
            "color": colour,
            "linestyle": next(dashes.setdefault(colour, cycle(DASHES))),
            "linewidth": 1.6,
        }
    return styles


def _colour(recipe: str) -> str:
    known = {f"{prefix}-{head}": COLOURS[head] for prefix in CORPORA for head in ("softmax", "moc", "mos")}
    return known.get(recipe, COLOURS["other"])


def _name(record: Record) -> str:
    changed = "".join(f", {key.removeprefix('train.')}={value}" for key, value in record.overrides.items())
    return f"{record.recipe}{changed}, {record.data['seconds'] / 60:.0f} min"


def save(figure: Figure, form: str) -> bytes:
    """PNG or SVG; the same figure gives the same bytes."""
    import matplotlib

    buffer = io.BytesIO()
    how: Callable[..., Any] = figure.savefig
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "highrank"}):
        if form == "svg":
            how(buffer, format="svg", transparent=True, metadata={"Date": None})
        else:
            how(buffer, format="png", dpi=150, metadata={"Software": None})
    return buffer.getvalue()


def close(figure: Figure) -> None:
    pyplot().close(figure)
