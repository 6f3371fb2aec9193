"""The figure of the quickstart: learning curves and singular values of each model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from highrank.plotting import BLACK, GREY, HEADS, pyplot

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def quickstart_figure(fits: Sequence[Any], truth: list[float], trained: Sequence[Any]) -> "Figure":
    """Draw the fits to the finite language above, the trained models below; `truth` is the spectrum of the language.

    Fits and models have a `name`, a `curve` of (step, value), and `singular_values`.
    """
    figure, axes = pyplot().subplots(2, 2, figsize=(11, 8), layout="constrained")
    (fit_curves, fit_spectra), (train_curves, train_spectra) = axes
    for fit in fits:
        fit_curves.plot(*zip(*fit.curve, strict=True), label=fit.name, **_style(fit.name))
        _plot_spectrum(fit_spectra, fit.singular_values, label=fit.name, **_style(fit.name))
    _plot_spectrum(fit_spectra, truth, label="A = log P*", color=BLACK, linewidth=0.8)
    for model in trained:
        style = _style(model.name)
        train_curves.plot(*zip(*model.curve, strict=True), label=model.name, marker="o", markersize=4, **style)
        _plot_spectrum(train_spectra, model.singular_values, label=model.name, **style)

    fit_curves.set(yscale="log", xlabel="step", ylabel="KL to P* (nats)", title="Finite language: fitting it")
    fit_spectra.set(title="Finite language: singular values of log P")
    train_curves.set(xlabel="epoch", ylabel="validation perplexity", title="Real text: training")
    train_spectra.set(title="Real text: singular values of log P")
    train_curves.xaxis.get_major_locator().set_params(integer=True)
    for axis in axes.flat:
        axis.grid(alpha=0.3)
        axis.legend()
    fit_curves.legend(loc="center right", bbox_to_anchor=(1.0, 0.42))  # between the curves of MoS and of the control
    figure.align_ylabels(axes[:, 0])
    return figure


def _plot_spectrum(axis: Any, values: list[float], **style: Any) -> None:
    axis.plot(range(1, len(values) + 1), [value / values[0] for value in values], **style)
    axis.set(yscale="log", xlabel="index", ylabel="singular value / largest")


def _style(name: str) -> dict[str, str]:
    """Return the line style of a model, by the head in its name."""
    if "control" in name:
        return {"color": GREY, "linestyle": ":"}
    head = next(head for head in HEADS if head in name.lower())
    return {"color": HEADS[head], "linestyle": "--" if head == "moc" else "-"}  # MoC often covers Softmax
