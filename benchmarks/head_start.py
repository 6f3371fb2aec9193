"""Does a mixture learn as fast as a softmax from the first step? Learning curves of a small GPT-2-like transformer.

    python benchmarks/head_start.py                  each head and each candidate for its initial scale (4 minutes)
    python benchmarks/head_start.py --figure-only    draw the figure of an existing CSV file again

Embeddings are tied and, like all matrices below the head, start as N(0, 0.02). Text: Python's reference documentation,
its 1,500 most frequent words.
"""

import argparse
import csv
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from highrank import MoCHead, MoSHead, SoftmaxHead
from highrank.data.pydoc import UNK, pydoc_lines
from highrank.heads import Head
from highrank.plotting import BLACK, GREY, HEAD_COLOURS, PURPLE, SKY, VERMILLION, pyplot, save_figure
from highrank.runs.provenance import provenance
from measure import write_csv

VOCABULARY, WIDTH, LAYERS, K = 1500, 48, 2, 4
WINDOW, BATCH, STEPS, EVERY = 64, 16, 350, 10
SIZES: dict[str, Any] = {"in_features": WIDTH, "embed_dim": WIDTH, "vocab_size": VOCABULARY, "n_components": K}


class Transformer(nn.Module):
    """A decoder-only transformer, initialised like GPT-2, under one of our heads."""

    def __init__(self, make_head: Callable[[nn.Parameter], Head]) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(WINDOW, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        self.head = make_head(self.words.weight)

    def forward(self, words: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of (B, T) targets after (B, T) words."""
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1])
        g = self.layers(self.words(words) + self.positions.weight[: words.shape[1]], mask=mask, is_causal=True)
        return self.head(g, targets).mean()


def learned_scale(weight: nn.Parameter) -> Head:
    """Return a mixture whose scale starts at 1 and is trained."""
    head = MoSHead(**SIZES, weight=weight, scale=1.0)
    del head.scale
    head.scale = nn.Parameter(torch.tensor(1.0))
    return head


def large_latent(weight: nn.Parameter) -> Head:
    """Return a mixture whose context vectors start near the bounds of tanh."""
    head = MoSHead(**SIZES, weight=weight, scale=1.0)
    with torch.no_grad():
        head.latent.weight.mul_(3)
    return head


VARIANTS: dict[str, tuple[Callable[[nn.Parameter], Head], dict[str, Any]]] = {
    "Softmax": (lambda w: SoftmaxHead(**SIZES, weight=w), {"color": HEAD_COLOURS["softmax"]}),
    "MoC": (lambda w: MoCHead(**SIZES, weight=w), {"color": HEAD_COLOURS["moc"]}),
    "MoS": (lambda w: MoSHead(**SIZES, weight=w), {"color": HEAD_COLOURS["mos"]}),
    "MoS, s = 1, as in the paper": (lambda w: MoSHead(**SIZES, weight=w, scale=1.0), {"color": BLACK}),
    "MoS, s = 1, latent layer x 3": (large_latent, {"color": GREY, "linestyle": "--"}),
    "MoS, s learned from 1": (learned_scale, {"color": PURPLE, "linestyle": "--"}),
    "MoS, s = 2": (lambda w: MoSHead(**SIZES, weight=w, scale=2.0), {"color": VERMILLION, "linestyle": ":"}),
    "MoS, s = 4": (lambda w: MoSHead(**SIZES, weight=w, scale=4.0), {"color": SKY, "linestyle": ":"}),
}


def training_ids() -> Tensor:
    """Return the training split of the documentation as ids; 0 stands for every rare word."""
    words = list(chain.from_iterable(pydoc_lines()[0]["train"]))
    frequent = [word for word, _ in Counter(words).most_common(VOCABULARY) if word != UNK][: VOCABULARY - 1]
    index = {word: i for i, word in enumerate(frequent, start=1)}
    return torch.tensor([index.get(word, 0) for word in words])


def train(make_head: Callable[[nn.Parameter], Head], ids: Tensor, lr: float) -> list[float]:
    """Train for STEPS updates and return the mean loss of every EVERY of them."""
    torch.manual_seed(0)
    model = Transformer(make_head)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.0)
    losses = []
    for _ in range(STEPS):
        windows = ids[torch.randint(len(ids) - WINDOW, (BATCH, 1)) + torch.arange(WINDOW + 1)]
        loss = model(windows[:, :-1], windows[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return [sum(losses[i : i + EVERY]) / EVERY for i in range(0, STEPS, EVERY)]


def draw(rows: list[dict[str, Any]], file: Path) -> None:
    """Draw the three heads on the left, and the candidates for the scale of h on the right."""
    figure, axes = pyplot().subplots(1, 2, figsize=(11, 4.2), sharey=True, layout="constrained")
    panels = [("Softmax", "MoC", "MoS", "MoS, s = 1, as in the paper"), ("Softmax", *list(VARIANTS)[2:])]
    for axis, names in zip(axes, panels, strict=True):
        for name in names:
            points = [(int(row["step"]), float(row["loss"])) for row in rows if row["head"] == name]
            axis.plot(*zip(*points, strict=True), label=name, **VARIANTS[name][1])
        axis.set(xlabel="step", ylabel="training loss (nats per token)", ylim=(3.8, 7.4))
        axis.grid(alpha=0.3)
        axis.legend()
    axes[0].set_title("Heads with their defaults")
    axes[1].set_title("Candidates for the scale s of the context vectors")
    save_figure(figure, [file])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--csv", type=Path, default=Path("head_start.csv"))
    parser.add_argument("--figure-only", action="store_true")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if arguments.figure_only:
        with open(arguments.csv, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    else:
        ids = training_ids()
        columns = provenance(torch.device("cpu"))
        for name, (make_head, _) in VARIANTS.items():
            curve = train(make_head, ids, arguments.lr)
            steps = range(EVERY, STEPS + 1, EVERY)
            for step, loss in zip(steps, curve, strict=True):
                rows.append({"head": name, "lr": arguments.lr, "step": step, "loss": round(loss, 4), **columns})
            write_csv(arguments.csv, rows)
            print(f"{name:30} {curve[0]:.2f} {curve[9]:.2f} {curve[19]:.2f} {curve[-1]:.2f}", flush=True)
    draw(rows, arguments.csv.with_suffix(".png"))


if __name__ == "__main__":
    main()
