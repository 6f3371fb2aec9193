"""Do PartialShuffle and two-tailed averaging help? Trains models with neither, each and both.

    python benchmarks/plus.py                         a small pydoc model on a CPU, three seeds, a few minutes
    python benchmarks/plus.py --variants plain sampled-1/32 sampled-1/4 sampled-1      do sampled gradients harm?
    python benchmarks/plus.py --recipes pydoc-softmax pydoc-moc pydoc-mos --set --tokens 0 --epochs 20 \
        --variants plain two-tailed                         the recipes as they are, and with NT-ASGD; 20 minutes
    python benchmarks/plus.py --recipes ptb-mos --set --tokens 0 --data-dir corpora --epochs 150 --seeds 28 29

There is one row per recipe, variant and seed, with the perplexities of its best weights; every run has the same number
of epochs. At the end, the gain of each variant over the plain one is printed in nats per token on test, with its
standard error over seeds. Variants share their seeds, hence their initial weights.
"""

import itertools
import math
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from highrank.data.corpus import Corpus, load_corpus
from highrank.recipes import Recipe, get_recipe, override
from highrank.runs.folder import Run
from highrank.runs.provenance import provenance
from highrank.runs.record import RunRecord, summarize
from highrank.runs.training import train_run
from measure import make_parser, write_csv

# Small enough for one core, on part of the text. At the recipe's own learning rate of 20, averaging starts too early.
SMALL = ["model.embed_dim=16", "model.hidden_sizes=48", "model.n_components=2", "train.lr=10", "train.batch_size=8",
         "train.eval_batch_size=40"]  # fmt: skip
VARIANTS = {
    "plain": [],
    "shuffle": ["train.partial_shuffle=true"],
    "two-tailed": ["train.averaging=two-tailed"],
    "both": ["train.partial_shuffle=true", "train.averaging=two-tailed"],
    "sampled-1/32": ["train.sample_below=0.03125"],
    "sampled-1/4": ["train.sample_below=0.25"],
    "sampled-1": ["train.sample_below=1"],
}
PLAIN = ["train.partial_shuffle=false", "train.averaging=nt-asgd"]  # which a variant changes
PLUS = ("plain", "shuffle", "two-tailed", "both")
RESULTS = ("epochs", "valid_ppl", "test_ppl", "best_epoch", "averaged_from", "seconds")  # from the run's summary


def train(recipe: Recipe, corpus: Corpus, device: torch.device, epochs: int) -> RunRecord:
    """Train a model, and return its results without keeping the run."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder) / "run")
        outcome = train_run(recipe, corpus, run, device, max_epochs=epochs)
        return summarize(run, corpus, device, outcome)


def describe_gains(rows: list[dict[str, Any]]) -> list[str]:
    """Return one line per recipe and variant with its gain over the plain one, in nats per token on test."""
    nats = {(row["recipe"], row["variant"], row["seed"]): math.log(row["test_ppl"]) for row in rows}
    gains: dict[tuple[str, str], list[float]] = {}
    for recipe, variant, seed in nats:
        if variant != "plain" and (recipe, "plain", seed) in nats:
            gain = nats[recipe, "plain", seed] - nats[recipe, variant, seed]
            gains.setdefault((recipe, variant), []).append(gain)
    return [
        f"{recipe}, {variant}: gains {statistics.mean(of_seeds):+.4f} "
        f"+- {statistics.stdev(of_seeds) / math.sqrt(len(of_seeds)):.4f} (standard error)"
        for (recipe, variant), of_seeds in gains.items()
        if len(of_seeds) > 1
    ]


def main() -> None:
    parser = make_parser(__doc__, "plus.csv")
    parser.add_argument("--recipes", nargs="+", default=["pydoc-mos"], help="all of one corpus")
    parser.add_argument("--set", nargs="*", metavar="KEY=VALUE", default=SMALL, help="of every variant")
    parser.add_argument("--variants", choices=VARIANTS, nargs="+", default=PLUS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--epochs", type=int, default=35)
    parser.add_argument("--tokens", type=int, default=16_000, help="length of the training text; 0: all")
    parser.add_argument("--data-dir", type=Path)
    arguments = parser.parse_args()
    device = arguments.device
    recipes = [override(get_recipe(name), [*PLAIN, *arguments.set]) for name in arguments.recipes]
    data = recipes[0].data
    corpus = load_corpus(data.corpus, arguments.data_dir, data.level)
    ids = corpus.splits["train"][: arguments.tokens or None]
    corpus = replace(corpus, splits={**corpus.splits, "train": ids})
    rows: list[dict[str, Any]] = []
    for base, seed, variant in itertools.product(recipes, arguments.seeds, arguments.variants):
        recipe = override(base, [*VARIANTS[variant], f"train.seed={seed}"])
        summary = train(recipe, corpus, device, arguments.epochs)
        row = dict(
            recipe=recipe.name, settings=" ".join(arguments.set), tokens=len(ids), variant=variant, seed=seed,
            **{key: getattr(summary, key) for key in RESULTS}, **provenance(device),
        )  # fmt: skip
        rows.append(row)
        write_csv(arguments.csv, rows)
        ppl = f"valid {row['valid_ppl']:.2f}, test {row['test_ppl']:.2f}"
        print(f"{recipe.name}, seed {seed}, {variant}: {ppl}", flush=True)
    print("\n".join(describe_gains(rows)))
    print(f"Written to {arguments.csv}")


if __name__ == "__main__":
    main()
