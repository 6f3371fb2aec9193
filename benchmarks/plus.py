"""Do the plus recipes' ingredients help? The same small model with and without PartialShuffle and two-tailed averaging.

    python benchmarks/plus.py                         a small pydoc model on a CPU, three seeds, a few minutes
    python benchmarks/plus.py --recipe ptb-mos --set --tokens 0 --data-dir corpora --epochs 150 --seeds 28 29

Every variant trains every seed for the same number of epochs; one row each, with the perplexities of its best weights.
At the end, what each variant gains over the plain one in nats a token on test, seed by seed, with its standard error,
beside the spread between seeds. Variants share seeds, hence initial weights; the rest is chance.
"""

import argparse
import math
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from highrank.bench.record import Record, origin
from highrank.data.corpus import load_corpus
from highrank.recipes import get_recipe, override
from highrank.runs.folder import Run
from highrank.runs.record import summarize
from highrank.training.loop import train

# Small enough for a core, on part of the text. At the recipe's own rate, 20, NT-ASGD's rule fires far too early here.
SMALL = ["model.embed_dim=16", "model.hidden_sizes=48", "model.n_components=2", "train.lr=10", "train.batch_size=8",
         "train.eval_batch_size=40"]  # fmt: skip
VARIANTS = {
    "plain": [],
    "shuffle": ["train.partial_shuffle=true"],
    "two-tailed": ["train.averaging=two-tailed"],
    "both": ["train.partial_shuffle=true", "train.averaging=two-tailed"],
}


def gains(rows: list[dict]) -> list[str]:
    """Each variant against the plain one, in nats a token on test."""
    nats = {(row["variant"], row["seed"]): math.log(row["test_ppl"]) for row in rows}
    plain = [loss for (variant, _), loss in nats.items() if variant == "plain"]
    lines = []
    if len(plain) > 1:
        lines.append(f"plain: {statistics.mean(plain):.4f}, between seeds +- {statistics.stdev(plain):.4f}")
    for variant in dict.fromkeys(row["variant"] for row in rows if row["variant"] != "plain"):
        gained = [nats["plain", s] - loss for (v, s), loss in nats.items() if v == variant and ("plain", s) in nats]
        if len(gained) > 1:
            error = statistics.stdev(gained) / math.sqrt(len(gained))
            lines.append(f"{variant}: gains {statistics.mean(gained):+.4f} +- {error:.4f} (standard error)")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="pydoc-mos")
    parser.add_argument("--set", nargs="*", metavar="KEY=VALUE", default=SMALL, help="Of every variant.")
    parser.add_argument("--variants", choices=VARIANTS, nargs="+", default=list(VARIANTS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--epochs", type=int, default=35)
    parser.add_argument("--tokens", type=int, default=16_000, help="Of the training text; 0: all.")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--csv", type=Path, default=Path("plus.csv"))
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    chosen = get_recipe(arguments.recipe)
    corpus = load_corpus(chosen.data.corpus, arguments.data_dir, chosen.data.level)
    ids = corpus.splits["train"]
    corpus = replace(corpus, splits={**corpus.splits, "train": ids[: arguments.tokens or None]})
    record = Record(arguments.csv)
    for seed in arguments.seeds:
        for variant in arguments.variants:
            recipe = override(chosen, [*arguments.set, *VARIANTS[variant], f"train.seed={seed}"])
            with tempfile.TemporaryDirectory() as folder:
                run = Run(Path(folder) / "run")
                outcome = train(recipe, corpus, run, device, max_epochs=arguments.epochs)
                told = summarize(run, corpus, device, outcome, batch_size=10)
            keys = ("epochs", "valid_ppl", "test_ppl", "best_epoch", "averaged_from", "seconds")
            row = {"recipe": recipe.name, "settings": " ".join(arguments.set), "tokens": len(corpus.splits["train"])}
            row |= {"variant": variant, "seed": seed} | {key: told[key] for key in keys}
            record.add(row | origin(device))
            perplexities = f"valid {told['valid_ppl']:.2f}, test {told['test_ppl']:.2f}"
            when = f"averaged from {told['averaged_from']}, {told['seconds']:.0f} s"
            print(f"seed {seed}, {variant}: {perplexities}, {when}", flush=True)
    print("\n".join(gains(record.rows)))
    print(f"Written to {arguments.csv}")


if __name__ == "__main__":
    main()
