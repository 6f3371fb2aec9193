"""Draw docs/figures/social-preview.png, 1280 x 640 pixels, from the analysis of three Penn Treebank models."""

from pathlib import Path

from highrank.plotting import GREY, HEAD_COLOURS, pyplot, save_figure
from highrank.runs.analysis import read_analysis

ROOT = Path(__file__).parents[1]
NAMES = {"softmax": "softmax", "moc": "mixture of contexts", "mos": "mixture of softmaxes"}


def main() -> None:
    record = read_analysis(ROOT / "results" / "analysis" / "ptb-heads.json")
    figure = pyplot().figure(figsize=(12.8, 6.4))
    figure.text(0.05, 0.86, "highrank", fontsize=52, weight="bold")
    figure.text(0.05, 0.77, "language models that break the softmax bottleneck", fontsize=25, color=GREY)
    axis = figure.add_axes((0.05, 0.12, 0.9, 0.56))
    for model in record.models:
        values = [value / model.spectrum.values[0] for value in model.spectrum.values]
        label = f"{NAMES[model.head]}, D = {model.embed_dim}: rank {model.rank:,}"
        axis.loglog(model.spectrum.index, values, color=HEAD_COLOURS[model.head], linewidth=4, label=label)
    axis.set(ylim=(1e-18, 3), xlim=(1, record.vocabulary))
    axis.set_xlabel("singular values of the log-probabilities of 10,000 words, Penn Treebank", fontsize=16, color=GREY)
    axis.set(xticks=[], yticks=[])
    axis.minorticks_off()
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(loc="lower left", fontsize=18, frameon=False)
    save_figure(figure, [ROOT / "docs" / "figures" / "social-preview.png"], dpi=100)


if __name__ == "__main__":
    main()
