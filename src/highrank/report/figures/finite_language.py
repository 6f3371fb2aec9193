"""The figures of `highrank theory`: attainable KL over D, and the rank of the fitted models over D."""

from typing import TYPE_CHECKING, Any

from highrank.analysis.finite_language import TheoryReport
from highrank.analysis.finite_language.models import NAMES
from highrank.plotting import GREY, HEAD_COLOURS, PURPLE, pyplot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLES: dict[str, dict[str, Any]] = {
    "softmax": {"color": HEAD_COLOURS["softmax"], "marker": "o", "markersize": 5},
    # MoC lies on top of Softmax, so its markers are hollow and its line dashed.
    "moc": {"color": HEAD_COLOURS["moc"], "marker": "s", "markersize": 8, "markerfacecolor": "none", "linestyle": "--"},
    "mos": {"color": HEAD_COLOURS["mos"], "marker": "^", "markersize": 5},
}
ROUND_OFF = 1e-16  # where an exact model is drawn


def draw_kl(report: TheoryReport) -> "Figure":
    """Draw the KL of each head over D, the exact models, and the region that no Softmax or MoC reaches."""
    figure, axis = _axis(report)
    for head in NAMES:
        points = [p for p in report.points if p.head == head]
        name = points[0].found.name
        dims = [p.found.embed_dim for p in points]
        axis.plot(dims, [max(p.found.kl, ROUND_OFF) for p in points], label=f"{name}, best found", **STYLES[head])
        exact = [p.found.embed_dim for p in points if p.constructed]
        if exact and head != "moc":  # that of MoC is the softmax
            hollow = {"markerfacecolor": "none", "markersize": 11} if head == "softmax" else {"markersize": 7}
            style: dict[str, Any] = {"linestyle": "none", "marker": "*", "color": HEAD_COLOURS[head], **hollow}
            axis.plot(exact, [ROUND_OFF] * len(exact), label=f"{name}, exact by construction", **style)
    floors = {p.found.embed_dim: p.lower_bound for p in report.points if p.head == "softmax" and p.lower_bound}
    if floors:
        dims, values = list(floors), list(floors.values())
        axis.fill_between(dims, values, ROUND_OFF / 3, color=HEAD_COLOURS["softmax"], alpha=0.12, linewidth=0)
        axis.plot(dims, values, color=HEAD_COLOURS["softmax"], linewidth=0.8, label="no Softmax or MoC below this")
    axis.set(yscale="log", ylabel="KL to the truth (nats)")
    axis.set_ylim(bottom=ROUND_OFF / 3)
    axis.legend(fontsize=8, loc="center left", bbox_to_anchor=(0.0, 0.42))
    return figure


def draw_rank(report: TheoryReport) -> "Figure":
    """Draw the rank of log Q of each fitted model over D."""
    figure, axis = _axis(report)
    for head in NAMES:
        fits = [p.found for p in report.points if p.head == head]
        axis.plot([fit.embed_dim for fit in fits], [fit.rank for fit in fits], label=fits[0].name, **STYLES[head])
    truth = report.ranks.a
    axis.axhline(truth, color="black", linewidth=0.8, linestyle="-.", label=f"the truth: rank(A) = {truth}")
    axis.set(ylabel="rank of log Q of the fitted model")
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=8, loc="center left", bbox_to_anchor=(0.0, 0.72))
    return figure


def _axis(report: TheoryReport) -> tuple["Figure", Any]:
    """Return a figure with the title, the axis of D, and the D at which a Softmax becomes exact."""
    from matplotlib.ticker import MaxNLocator

    setup = report.setup
    figure, axis = pyplot().subplots(figsize=(7.5, 4.8), layout="constrained")
    axis.set_title(
        f"{setup.contexts} contexts, {setup.words} words, rank(A) = {report.ranks.a}, K = {setup.components}"
        f"{', output bias' if setup.bias else ''}{', shared word frequencies' if setup.unigram else ''}"
        f", seed {setup.seed}",
        fontsize=10,
    )
    axis.set_xlabel("embedding size D")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.grid(alpha=0.3)
    limit = report.ranks.a - 1
    axis.axvline(limit, color=PURPLE, linewidth=1.5, linestyle=":", label=f"rank(A) - 1 = {limit}")
    enough = report.enough_for_softmax
    if enough != limit:
        axis.axvline(enough, color=GREY, linewidth=1.2, linestyle=":", label=f"enough for a Softmax: {enough}")
    return figure, axis
