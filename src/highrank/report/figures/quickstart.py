"""The figure of the quickstart: how well each head fits a finite language, and the singular values it reaches."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from highrank.plotting import BLACK, GREY, HEAD_COLOURS, pyplot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from highrank.analysis.finite_language.models import Fit


def quickstart_figure(fits: "Sequence[Fit]", truth: list[float]) -> "Figure":
    """Draw the fits to the language on the left and their spectra on the right; `truth` is the language's spectrum."""
    figure, (curves, spectra) = pyplot().subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    for fit in fits:
        curves.plot(*zip(*fit.curve, strict=True), label=fit.name, **_style(fit.name))
        _plot_spectrum(spectra, fit.singular_values, label=fit.name, **_style(fit.name))
    _plot_spectrum(spectra, truth, label="A = log P*", color=BLACK, linewidth=0.8)
    bound = min(fit.rank_bound for fit in fits if fit.rank_bound)
    spectra.axvline(bound, color=GREY, linewidth=0.8)
    spectra.annotate(
        f"   D + 2 = {bound}", (bound, 0.3), xycoords=("data", "axes fraction"), color=GREY, verticalalignment="bottom"
    )
    curves.set(yscale="log", xlabel="step", ylabel="KL to P* (nats)", title="How far each head is from the language")
    spectra.set(title="Singular values of its log-probabilities")
    for axis in (curves, spectra):
        axis.grid(alpha=0.3)
        axis.legend()
    curves.legend(loc="center right", bbox_to_anchor=(1.0, 0.36))  # between the curves of MoS and of the control
    figure.supxlabel(
        "A softmax and a mixture of contexts (MoC) end at rank D + 2, where their singular values drop to round-off, "
        "and cannot fit the language.\nA mixture of softmaxes (MoS) with the same D has full rank and comes closer; "
        "a softmax with D = rank (control) fits it.",
        fontsize=9,
    )
    return figure


def _plot_spectrum(axis: Any, values: list[float], **style: Any) -> None:
    axis.plot(range(1, len(values) + 1), [value / values[0] for value in values], **style)
    axis.set(yscale="log", xlabel="index", ylabel="singular value / largest")


def _style(name: str) -> dict[str, str]:
    """Return the line style of a model, by the head in its name."""
    if "control" in name:
        return {"color": GREY, "linestyle": ":"}
    head = next(head for head in HEAD_COLOURS if head in name.lower())
    return {"color": HEAD_COLOURS[head], "linestyle": "--" if head == "moc" else "-"}  # MoC often covers Softmax
