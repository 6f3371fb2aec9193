"""The figure of a diagnosis: spectra, row norms and, with a text, gradient shares."""

from typing import TYPE_CHECKING, Any

from highrank.analysis.diagnosis import DoctorRecord
from highrank.analysis.record import Spectrum
from highrank.plotting import BLUE, GREEN, GREY, ORANGE, pyplot
from highrank.report.figures.spectrum import FLOOR, ROUND_OFF, normalise

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_diagnosis(record: DoctorRecord) -> "Figure":
    """Draw the spectra by index, and the distributions of norms and gradient shares."""
    panels = 2 if record.gradient is None else 3
    figure, axes = pyplot().subplots(1, panels, figsize=(5 * panels, 4.2), layout="constrained")
    figure.suptitle(record.model)
    _draw_spectra(axes[0], record)
    _draw_quantiles(axes[1], record.weights.layer.norms, "rows", BLUE)
    axes[1].set(title="Norms of the output matrix", xlabel="norm of the row of a token", ylabel="tokens below it, %")
    axes[1].set_xlim(left=0)
    if record.gradient is not None:
        share, reach = record.gradient.share, record.gradient.reach
        _draw_quantiles(axes[2], share.quantiles, "through the output matrix", BLUE)
        axes[2].axvline(share.random, color=BLUE, linestyle=":", label=f"random direction: {share.random:.2f}")
        if reach is not None:
            _draw_quantiles(axes[2], reach.quantiles, f"reach of the mixture, {reach.tokens} tokens", GREEN, "--")
            axes[2].axvline(reach.random, color=GREEN, linestyle=":", label=f"random direction: {reach.random:.2f}")
        axes[2].set(title="Share of the loss gradient", xlabel="share of the norm", ylabel="tokens below it, %")
        axes[2].set_xlim(0, 1)
        axes[2].legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)
    for axis in axes:
        axis.grid(alpha=0.3)
    return figure


def _draw_spectra(axis: Any, record: DoctorRecord) -> None:
    """Draw the singular values of the output matrix and, with a text, of the log-probabilities."""
    spectra: dict[str, tuple[Spectrum, str, str]] = {"output matrix": (record.weights.layer.spectrum, BLUE, "-")}
    if record.predictions is not None:
        spectra["log-probabilities"] = (record.predictions.spectrum, ORANGE, "--")
        if record.predictions.varying is not None:
            spectra["their part that varies with context"] = (record.predictions.varying.spectrum, GREEN, "-.")
    lowest = 1.0
    for label, (spectrum, colour, dash) in spectra.items():
        values = normalise(spectrum)
        axis.plot(spectrum.index, values, color=colour, linestyle=dash, linewidth=2, label=label)
        lowest = min(lowest, *values)
    if record.predictions is not None and lowest < record.predictions.round_off:
        axis.axhspan(FLOOR / 10, record.predictions.round_off, **ROUND_OFF)
    if record.head in ("softmax", "moc"):
        bound = record.weights.layer.rank_bound
        axis.axvline(bound, color=GREY, linestyle=":", label=f"bound on the rank of log P: {bound:,}")
    axis.set(
        title="Singular values", yscale="log", ylim=(lowest / 3, 2), xlabel="index", ylabel="divided by the largest"
    )
    axis.legend(fontsize="small")


def _draw_quantiles(axis: Any, quantiles: list[float], label: str, colour: str, dash: str = "-") -> None:
    percent = [100 * i / (len(quantiles) - 1) for i in range(len(quantiles))]
    axis.plot(quantiles, percent, color=colour, linestyle=dash, linewidth=2, label=label)
