"""The spectrum of log-probabilities: the paper's figure (appendix C.1)."""

from typing import TYPE_CHECKING, Any

from highrank.analysis.record import Analysis, AnalysisRecord, Spectrum
from highrank.plotting import COLOURS, HEAD_COLOURS, pyplot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DASHES = ("-", "--", "-.", ":")  # tell curves apart in print
BY_HEAD = {head: (colour, "--" if head == "moc" else "-") for head, colour in HEAD_COLOURS.items()}
ROUND_OFF: dict[str, Any] = {"color": "#999999", "alpha": 0.15, "linewidth": 0, "label": "round-off: counts as zero"}
FLOOR = 1e-19  # smaller values are drawn here: a log scale has no zero


def plot_spectrum(record: AnalysisRecord) -> "Figure":
    """Draw, for each model of an analysis, the share of its normalised singular values below a threshold."""
    models = record.models
    total = min(record.tokens, record.vocabulary)  # singular values
    figure, axis = pyplot().subplots(figsize=(7.5, 4.8), layout="constrained")
    lowest = 1.0
    for model, (colour, dash) in zip(models, _styles(models), strict=True):
        x = normalise(model.spectrum)
        y = [100 * (total - index) / total for index in model.spectrum.index]
        label = f"{model.name}: rank {model.rank:,}"
        # Dashed lines go on top, so that a solid line below shows through.
        axis.plot(x, y, color=colour, linestyle=dash, linewidth=2, label=label, zorder=2 if dash == "-" else 3)
        lowest = min(lowest, *x)
    axis.axvspan(FLOOR / 10, max(model.round_off for model in models), **ROUND_OFF)
    axis.set_xlim(left=lowest / 3, right=2)
    axis.set(
        xscale="log",
        xlabel="normalised singular value (1 is the model's largest)",
        ylabel="singular values below it, %",
        ylim=(-2, 102),
        title=f"Log-probabilities after {record.tokens:,} tokens of {record.corpus}, {record.split}",
    )
    axis.grid(alpha=0.3)
    axis.legend(fontsize="small" if len(models) > 4 else None)
    return figure


def normalise(spectrum: Spectrum) -> list[float]:
    """Divide the singular values by the largest; zeros become `FLOOR`."""
    return [max(value / spectrum.values[0], FLOOR) for value in spectrum.values]


def _styles(models: list[Analysis]) -> list[tuple[str, str]]:
    """Return colours and dashes: those of the head if each head occurs once, and by position otherwise."""
    heads = [model.head for model in models]
    if len(set(heads)) == len(heads) and set(heads) <= BY_HEAD.keys():
        return [BY_HEAD[head] for head in heads]
    return [(COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)]) for i in range(len(heads))]
