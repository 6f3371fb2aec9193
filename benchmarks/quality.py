"""Does speed cost quality? Trains a recipe fast (mixed precision, CUDA graphs) and plainly (float32, eager).

    python benchmarks/quality.py --data-dir corpora --epochs 20 --seeds 28 29 --csv quality.csv
    python benchmarks/quality.py --data-dir corpora --epochs 5 --seeds 28 --hows plain --csv plain.csv

There is one row per run and epoch, with the validation perplexity. At the end, the two ways' means are printed with the
spread between seeds: dropout masks and window lengths differ between the ways as they do between seeds.
"""

import argparse
import math
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from highrank.bench.step import FAST, PLAIN
from highrank.bench.table import Row, Table, origin
from highrank.data.corpus import load_corpus
from highrank.recipes import get_recipe, override
from highrank.runs.folder import Run
from highrank.runs.training import train

HOWS = {"fast": (FAST, "mixed"), "plain": (PLAIN, "float32")}


@dataclass(frozen=True, kw_only=True)
class QualityRow(Row):
    recipe: str
    how: str
    seed: int
    epoch: int
    train_ppl: float
    valid_ppl: float
    seconds: float


def summarize_epoch(rows: list[QualityRow], epoch: int) -> str:
    """Return the mean validation loss of both ways after an epoch, in nats per token."""
    text = [f"epoch {epoch}:"]
    for how, _ in HOWS.values():
        losses = [math.log(row.valid_ppl) for row in rows if row.how == how and row.epoch == epoch]
        if losses:
            spread = f" +- {statistics.stdev(losses):.4f}" if len(losses) > 1 else ""
            text.append(f"{how} {statistics.mean(losses):.4f}{spread} nats over {len(losses)} seeds;")
    return " ".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="ptb-mos")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, nargs="+", default=[28, 29])
    parser.add_argument("--hows", choices=HOWS, nargs="+", default=list(HOWS))
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--csv", type=Path, default=Path("quality.csv"))
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    base = get_recipe(arguments.recipe)
    corpus = load_corpus(base.data.corpus, arguments.data_dir, base.data.level)
    table = Table(arguments.csv, QualityRow)
    for how, precision in (HOWS[name] for name in arguments.hows):
        for seed in arguments.seeds:
            recipe = override(base, [f"train.seed={seed}", f"train.precision={precision}"])
            with tempfile.TemporaryDirectory() as folder:
                run = Run(Path(folder) / "run")
                train(recipe, corpus, run, device, graphs=how == FAST, max_epochs=arguments.epochs)
                for metrics in run.epochs():
                    numbers = {key: getattr(metrics, key) for key in ("epoch", "train_ppl", "valid_ppl", "seconds")}
                    table.add(QualityRow(recipe=recipe.name, how=how, seed=seed, **numbers, **origin(device)))
            last = table.rows[-1]
            print(f"{how}, seed {seed}: valid {last.valid_ppl:.2f} after {last.seconds:.0f} s", flush=True)
    for epoch in sorted({1, arguments.epochs // 2, arguments.epochs} - {0}):
        print(summarize_epoch(table.rows, epoch))
    print(f"Written to {arguments.csv}")


if __name__ == "__main__":
    main()
