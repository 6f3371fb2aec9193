"""How much noise does the sampled backward pass (`train.sample_below`) add to that of the mini-batch?

    python benchmarks/sampled_backward.py                     a small pydoc model on a CPU, two minutes
    python benchmarks/sampled_backward.py --recipe ptb-mos --set --tokens 0 --data-dir corpora --epochs 20

Trains a model, then takes the gradient of several mini-batches: the exact one, and for every eps some sampled ones with
the same dropout masks. With g_b the exact gradient of mini-batch b and s_b a sampled one, of all parameters together,

    noise = mean |s_b - g_b|^2 / mean |g_b - mean g|^2

is the variance of the sample over that of the mini-batch. `bias` is the norm of the mean of s_b - g_b over all draws,
over what is expected of an unbiased sample: near 1 if there is none. There is one row per eps.
"""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from highrank.data.corpus import load_corpus
from highrank.ops.mos_nll import mos_nll
from highrank.ops.mos_nll.sampling import RowSample
from highrank.recipes import get_recipe, override
from highrank.runs.provenance import provenance
from highrank.training.stages import Training
from measure import make_parser, write_csv
from peers import responsibilities

SMALL = ["model.embed_dim=24", "model.hidden_sizes=64", "model.n_components=15"]
EPS = (1 / 256, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1.0)


def main() -> None:
    parser = make_parser(__doc__, "sampled_backward.csv")
    parser.add_argument("--recipe", default="pydoc-mos")
    parser.add_argument("--set", nargs="*", metavar="KEY=VALUE", default=SMALL)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batches", type=int, default=16)
    parser.add_argument("--draws", type=int, default=2, help="sampled gradients per mini-batch and eps")
    parser.add_argument("--tokens", type=int, default=16_000, help="length of the training text; 0: all")
    parser.add_argument("--data-dir", type=Path)
    arguments = parser.parse_args()
    device = arguments.device
    recipe = override(get_recipe(arguments.recipe), [*arguments.set, "train.precision=float32"])
    corpus = load_corpus(recipe.data.corpus, arguments.data_dir, recipe.data.level)
    ids = corpus.splits["train"][: arguments.tokens or None]
    corpus = replace(corpus, splits={**corpus.splits, "train": ids})
    training = Training(recipe, corpus, device)
    for epoch in range(1, arguments.epochs + 1):
        for minibatch in training.minibatches():
            training.update(minibatch)
        nll = training.validate()
        training.end_epoch(nll)
        print(f"epoch {epoch}: validation loss {nll:.3f}", flush=True)

    exact: list[Tensor] = []
    errors: dict[float, list[Tensor]] = {eps: [] for eps in EPS}  # s_b - g_b, one per draw
    kept: dict[float, list[float]] = {eps: [] for eps in EPS}
    for minibatch in itertools.islice(training.minibatches(), arguments.batches):
        words, targets = minibatch.tensors
        log_pi, h = context(training.task, words)
        gradient = gradient_of(training.task.model, log_pi, h, targets, None)
        exact.append(gradient)
        head = training.task.model.head
        r = responsibilities(h, log_pi, head.weight, head.bias, targets.flatten())
        for eps in EPS:
            kept[eps].append(float((RowSample.draw(eps, h).weights(r) > 0).float().mean()))
            for _ in range(arguments.draws):
                errors[eps].append(gradient_of(training.task.model, log_pi, h, targets, eps) - gradient)
    gradients = torch.stack(exact)
    variance = (gradients - gradients.mean(0)).square().sum() / (len(exact) - 1)
    rows: list[dict[str, Any]] = []
    for eps in EPS:
        sampled = torch.stack(errors[eps])
        noise = sampled.square().sum(1).mean()
        bias = sampled.mean(0).norm() / (noise / len(sampled)).sqrt()
        row = dict(
            recipe=recipe.name, settings=" ".join(arguments.set), tokens=len(ids), epochs=arguments.epochs,
            valid_nll=nll,
            batches=len(exact), draws=arguments.draws, eps=eps, kept=sum(kept[eps]) / len(kept[eps]),
            noise=float(noise / variance), bias=float(bias), **provenance(device),
        )  # fmt: skip
        rows.append(row)
        print(f"eps {eps:.4f}: keeps {row['kept']:.1%}, noise {row['noise']:.4f}, bias {row['bias']:.2f}", flush=True)
    write_csv(arguments.csv, rows)
    print(f"Written to {arguments.csv}")


def context(task: Any, words: Tensor) -> tuple[Tensor, Tensor]:
    """Return log pi (N, K) and h (N, K, D) of a window, with dropout, starting from a zero state."""
    hidden = task.model.backbone(words, task.model.initial_state(words.shape[1]))
    log_pi, h = task.model.head.log_components(hidden.g)
    return log_pi.flatten(0, 1), h.flatten(0, 1)


def gradient_of(model: Any, log_pi: Tensor, h: Tensor, targets: Tensor, eps: float | None) -> Tensor:
    """Return the gradient of the mean loss with respect to all parameters, as one vector."""
    head = model.head
    loss = mos_nll(h, log_pi, head.weight, head.bias, targets.flatten(), sample_below=eps).mean()
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)])


if __name__ == "__main__":
    main()
