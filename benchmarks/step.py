"""How long is a training step? Whole updates (forward, backward, clipping, update, averaging) on random words.

    python benchmarks/step.py --device cuda                  the paper's models, fast and plain, and MoS over Softmax
    python benchmarks/step.py --device cpu --recipe pydoc-mos --vocab 2000

Each row is a recipe under settings; times are medians over windows of exactly bptt words after a warm-up.
"""

import argparse
import statistics
import time
from dataclasses import replace
from pathlib import Path

import torch

from highrank.data.batches import Window
from highrank.data.corpus import Corpus
from highrank.recipes import get_recipe, override
from highrank.training.loop import Training
from highrank.training.provenance import provenance
from highrank.training.run import Run
from record import write_csv

FAST, PLAIN = "mixed, graphs", "float32, eager"
VOCABULARY = {"penn": 10_000, "wikitext-2": 33_278, "pydoc": 2_037}
PAPER = [  # recipe, settings: each MoS beside a Softmax at the same batch size, as in the paper's table 9 ("bs")
    ("ptb-mos", []),
    ("ptb-moc", []),
    ("ptb-softmax", ["train.batch_size=12"]),
    ("wt2-mos", ["train.micro_batch_size=none"]),
    ("wt2-moc", ["train.micro_batch_size=none"]),
    ("wt2-softmax", ["train.batch_size=15"]),
]


def measure(name: str, settings: list[str], how: str, device: torch.device, vocab: int | None, windows: int) -> dict:
    precision = "mixed" if how == FAST and device.type == "cuda" else "float32"
    recipe = override(get_recipe(name), [*settings, f"train.precision={precision}"])
    v = vocab or VOCABULARY[recipe.data.corpus]
    train = recipe.train
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(v, (train.batch_size * (train.bptt + 2) * 4,), generator=generator)
    corpus = Corpus("random", "word", [str(i) for i in range(v)], {"train": ids}, "")
    training = Training(replace(recipe), corpus, Run(Path("unused")), device, graphs=how == FAST)
    training.optimizer.start_averaging()
    stream = training.stream
    window = Window(0, stream[: train.bptt], stream[1 : train.bptt + 1])
    times = []
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    for i in range(windows + 3):
        began = time.perf_counter()
        for _ in range(5 if device.type == "cuda" else 1):
            training.train_window(window)
        training.read_totals()
        if i >= 3:
            times.append((time.perf_counter() - began) * 1e3 / (5 if device.type == "cuda" else 1))
    peak = torch.cuda.max_memory_allocated() / 2**20 if device.type == "cuda" else None
    ms = statistics.median(times)
    return {"recipe": name, "settings": " ".join(settings), "how": how, "batch": train.batch_size, "bptt": train.bptt,
            "median_ms": ms, "min_ms": min(times), "max_ms": max(times),
            "tokens_per_second": train.batch_size * train.bptt / ms * 1e3, "peak_mib": peak,
            **provenance(device)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--recipe", action="append")
    parser.add_argument("--how", choices=["fast", "plain", "both"], default="both")
    parser.add_argument("--vocab", type=int)
    parser.add_argument("--windows", type=int, default=12)
    parser.add_argument("--csv", type=Path)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    rows = []
    print(f"{'recipe':24} {'settings':28} {'how':16} {'ms':>8} {'spread':>7} {'tok/s':>10} {'peak MiB':>9}")
    hows = {"fast": [FAST], "plain": [PLAIN], "both": [FAST, PLAIN]}[arguments.how]
    for name, settings in [(r, []) for r in arguments.recipe or []] or PAPER:
        for how in hows:
            row = measure(name, settings, how, device, arguments.vocab, arguments.windows)
            rows.append(row)
            spread, peak = row["max_ms"] - row["min_ms"], row["peak_mib"] or 0
            print(f"{name:24} {row['settings']:28} {how:16} {row['median_ms']:8.2f} {spread:7.2f} "
                  f"{row['tokens_per_second']:10,.0f} {peak:9,.0f}", flush=True)  # fmt: skip
    if arguments.csv:
        write_csv(arguments.csv, rows)


if __name__ == "__main__":
    main()
