"""The figure of `highrank uptrain`: validation loss of the mixture and of the softmax, over steps and over time."""

from typing import TYPE_CHECKING

from highrank.plotting import HEAD_COLOURS, pyplot
from highrank.runs.uptrain import UptrainRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_uptraining(record: UptrainRecord) -> "Figure":
    """Draw both curves, from the common start."""
    figure, axes = pyplot().subplots(1, 2, figsize=(9.9, 3.8), layout="constrained", sharey=True)
    figure.suptitle(record.model)
    for label, curve, head in (("softmax", record.softmax, "softmax"), (record.mixture_name, record.mixture, "mos")):
        style = {"color": HEAD_COLOURS[head], "label": label, "marker": ".", "linewidth": 1.6}
        axes[0].plot(curve.step, curve.valid_nll, **style)
        axes[1].plot([seconds / 60 for seconds in curve.seconds], curve.valid_nll, **style)
    axes[0].set(xlabel="step", ylabel="validation loss, nats per token")
    axes[1].set(xlabel="minute of training")
    for axis in axes:
        axis.grid(alpha=0.3)
    axes[0].legend()
    return figure
