"""Does a run that is cut in two lose anything? Train, export (float16), import, go on: beside the same run uncut.

    python benchmarks/cut_run.py                                     pydoc-mos on a CPU, four seeds, some minutes
    python benchmarks/cut_run.py --recipe ptb-mos --data-dir corpora --epochs 60 --cut 30 --device cuda --seeds 1 2 3

For every seed one run is trained to the cut; from there it goes on by itself, and a copy goes on from an export. What
the copy lost is to be read beside the spread between seeds: the noise that any run has.
"""

import argparse
import math
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from highrank.bench.record import Record
from highrank.data.corpus import Corpus, load_corpus
from highrank.recipes import get_recipe, override
from highrank.recipes.recipe import Recipe
from highrank.training.export import export_run, import_run
from highrank.training.loop import train
from highrank.training.provenance import provenance
from highrank.training.record import summarize
from highrank.training.run import Run


def pair(recipe: Recipe, corpus: Corpus, arguments: argparse.Namespace, folder: Path) -> dict:
    """One seed: test and valid perplexity of the uncut run and of the cut one."""
    device = torch.device(arguments.device)
    whole, copy, export = Run(folder / "whole"), Run(folder / "copy"), folder / "export"
    train(recipe, corpus, whole, device, max_epochs=arguments.cut)
    export_run(whole, export, getattr(torch, arguments.dtype), 15 * 10**6, arguments.averages_only)
    import_run(export, copy)
    row = {"recipe": recipe.name, "settings": " ".join(arguments.set), "dtype": arguments.dtype,
           "averages_only": arguments.averages_only, "seed": recipe.train.seed, "epochs": arguments.epochs,
           "cut": arguments.cut}  # fmt: skip
    for name, run in (("uncut", whole), ("cut", copy)):
        stored = replace(recipe, train=run.recipe().train)
        outcome = train(stored, corpus, run, device, resume=True, max_epochs=arguments.epochs)
        summary = summarize(run, corpus, device, outcome, batch_size=10)
        row |= {f"{name}_valid_ppl": summary["valid_ppl"], f"{name}_test_ppl": summary["test_ppl"]}
    row["loss_of_cut"] = math.log(row["cut_test_ppl"] / row["uncut_test_ppl"])  # nats a token, on test
    return row | {"averaged_from": summary["averaged_from"], **provenance(device)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="pydoc-mos")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--cut", type=int, default=3)
    parser.add_argument("--dtype", choices=["float16", "bfloat16", "float32"], default="float16")
    parser.add_argument("--averages-only", action="store_true")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--csv", type=Path, default=Path("cut_run.csv"))
    arguments = parser.parse_args()
    chosen = get_recipe(arguments.recipe)
    corpus = load_corpus(chosen.data.corpus, arguments.data_dir, chosen.data.level)
    print(f"{'seed':>6} {'uncut valid/test':>18} {'cut valid/test':>18} {'cut - uncut, nats':>18} {'seconds':>8}")
    record = Record(arguments.csv)
    rows = record.rows
    for seed in arguments.seeds:
        recipe = override(chosen, [*arguments.set, f"train.seed={seed}"])
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            row = pair(recipe, corpus, arguments, Path(folder))
        record.add(row)
        uncut, cut = (f"{row[f'{name}_valid_ppl']:.3f} / {row[f'{name}_test_ppl']:.3f}" for name in ("uncut", "cut"))
        seconds = time.perf_counter() - began
        print(f"{seed:>6} {uncut:>18} {cut:>18} {row['loss_of_cut']:>+18.5f} {seconds:>8.0f}", flush=True)
    if len(rows) > 1:
        lost = [row["loss_of_cut"] for row in rows]
        noise = statistics.stdev(math.log(row["uncut_test_ppl"]) for row in rows)
        print(f"mean difference {statistics.mean(lost):+.5f} nats, largest {max(map(abs, lost)):.5f}; "
              f"spread between seeds (one standard deviation) {noise:.5f}")  # fmt: skip
    print(f"Written to {arguments.csv}")


if __name__ == "__main__":
    main()
