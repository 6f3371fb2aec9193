"""Does speed cost quality? The same recipe trained fast (mixed precision, CUDA graphs) and plainly (float32, eager).

    python benchmarks/quality.py --data-dir corpora --epochs 20 --seeds 28 29 --csv quality.csv
    python benchmarks/quality.py --data-dir corpora --epochs 5 --seeds 28 --hows plain --csv plain.csv

Validation perplexity after every epoch of every run, one row each; at the end, the two ways' means over seeds beside
the spread between seeds. Dropout masks and window lengths differ between the ways as they do between seeds, so
"within noise" means within that spread.
"""

import argparse
import math
import statistics
import tempfile
from pathlib import Path

import torch

from highrank.bench.record import Record, origin
from highrank.data.corpus import load_corpus
from highrank.recipes import get_recipe, override
from highrank.runs.folder import Run
from highrank.training.loop import train

HOWS = {"fast": ("mixed, graphs", "mixed", True), "plain": ("float32, eager", "float32", False)}


def compare(rows: list[dict], epoch: int) -> str:
    """Both ways after `epoch`, in nats a token."""
    text = [f"epoch {epoch}:"]
    for how, *_ in HOWS.values():
        losses = [math.log(r["valid_ppl"]) for r in rows if r["how"] == how and r["epoch"] == epoch]
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
    chosen = get_recipe(arguments.recipe)
    corpus = load_corpus(chosen.data.corpus, arguments.data_dir, chosen.data.level)
    record = Record(arguments.csv)
    for name in arguments.hows:
        how, precision, graphs = HOWS[name]
        for seed in arguments.seeds:
            recipe = override(chosen, [f"train.seed={seed}", f"train.precision={precision}"])
            with tempfile.TemporaryDirectory() as folder:
                run = Run(Path(folder) / "run")
                train(recipe, corpus, run, device, graphs=graphs, max_epochs=arguments.epochs)
                for line in (x for x in run.metrics() if x["kind"] == "epoch"):
                    of_epoch = {key: line[key] for key in ("epoch", "train_ppl", "valid_ppl", "seconds")}
                    record.add({"recipe": recipe.name, "how": how, "seed": seed, **of_epoch, **origin(device)})
            last = record.rows[-1]
            print(f"{how}, seed {seed}: valid {last['valid_ppl']:.2f} after {last['seconds']:.0f} s", flush=True)
    for epoch in sorted({1, arguments.epochs // 2, arguments.epochs} - {0}):
        print(compare(record.rows, epoch))
    print(f"Written to {arguments.csv}")


if __name__ == "__main__":
    main()
