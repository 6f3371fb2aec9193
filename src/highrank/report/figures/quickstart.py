"""The quickstart's picture: how each model learned, and the singular values of what it can say."""

from pathlib import Path
from typing import Any

from highrank.analysis.finite_language.laboratory import Fit
from highrank.cli.quickstart.spoken import Trained
from highrank.plotting import pyplot, save_figure
from highrank.report.figures.finite_language import STYLES


def draw(path: Path, fits: list[Fit], truth: list[float], trained: list[Trained]) -> None:
    figure, axes = pyplot().subplots(2, 2, figsize=(11, 8), layout="constrained")
    (known_curve, known_spectrum), (spoken_curve, spoken_spectrum) = axes
    for fit in fits:
        style = _style(fit.name)
        known_curve.plot(*zip(*fit.curve, strict=True), label=fit.name, **style)
        _spectrum(known_spectrum, fit.singular_values, fit.name, style)
    _spectrum(known_spectrum, truth, "the truth A", {"color": "black", "linestyle": "-", "linewidth": 0.8})
    known_curve.set(
        yscale="log", xlabel="step", ylabel="KL to the truth (nats)", title="A language we know: fitting it"
    )
    known_spectrum.set(title="A language we know: singular values of log P")

    for run in trained:
        style = _style(run.name)
        spoken_curve.plot(*zip(*run.curve, strict=True), label=run.name, marker="o", markersize=4, **style)
        _spectrum(spoken_spectrum, run.singular_values, run.name, style)
    spoken_curve.set(
        xlabel="epoch", ylabel="validation perplexity", yscale="log", title="A language we speak: learning it"
    )
    _plain(spoken_curve.yaxis)
    spoken_curve.xaxis.get_major_locator().set_params(integer=True)
    spoken_spectrum.set(title="A language we speak: singular values of log P")
    for axis in axes.flat:
        axis.grid(alpha=0.3)
        axis.legend()
    known_curve.legend(loc="center right", bbox_to_anchor=(1.0, 0.42))  # between MoS's curve and the control's
    figure.align_ylabels(axes[:, 0])
    save_figure(figure, [path])


def _plain(axis: Any) -> None:
    """100, 150, 200 ... on a log scale of less than a decade, instead of powers of ten."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 5, 6, 8)))
    axis.set_major_formatter("{x:,.0f}")
    axis.set_minor_formatter(NullFormatter())


def _spectrum(axis: Any, values: list[float], label: str, style: dict[str, Any]) -> None:
    axis.plot(range(1, len(values) + 1), [v / values[0] for v in values], label=label, **style)
    axis.set(yscale="log", xlabel="index", ylabel="singular value / largest")


def _style(name: str) -> dict[str, Any]:
    lowered = name.lower()
    kind = next(k for k in ("control", "softmax", "moc", "mos") if k in lowered)
    return STYLES[kind]
