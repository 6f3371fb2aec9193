"""Does a run that is cut in two lose anything? Train, export (float16), import, go on: beside the same run uncut.

    python benchmarks/cut_run.py          pydoc-mos on a CPU, three seeds, cut before and after averaging starts
    python benchmarks/cut_run.py --recipe ptb-mos --data-dir corpora --epochs 90 --cut 30 60 --device cuda --seeds 1 2 3

For every seed one run is trained to the end; at every cut an export is taken of it, from which a copy goes on alone.
What a copy lost is to be read beside the spread between seeds: the noise that any run has.
"""

import argparse
import math
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from highrank.bench.record import Record
from highrank.data.corpus import Corpus, load_corpus
from highrank.recipes import get_recipe, override
from highrank.recipes.recipe import Recipe
from highrank.runs.export import export_run, import_run
from highrank.runs.folder import Run
from highrank.runs.provenance import provenance
from highrank.runs.record import summarize
from highrank.training.loop import train

# Averaging from the fifth epoch on, by finetuning, so that a short run of pydoc-mos has both kinds of epochs.
SHORT = ["train.max_epochs=4", "train.finetunes=1", "train.finetune_max_epochs=1000"]


def cut_and_uncut(recipe: Recipe, corpus: Corpus, arguments: argparse.Namespace, folder: Path) -> list[dict]:
    """One seed: a row a cut, with the perplexities of the uncut run and of the copy that went on from the export."""
    device = torch.device(arguments.device)
    whole = Run(folder / "whole")
    for i, cut in enumerate(arguments.cut):
        _go_on(recipe, corpus, whole, device, cut, resume=i > 0)
        dtype = getattr(torch, arguments.dtype)
        export_run(whole, folder / f"export-{cut}", dtype, 15 * 10**6, arguments.averages_only)
    uncut = summarize(whole, corpus, device, _go_on(recipe, corpus, whole, device, arguments.epochs), batch_size=10)
    rows = []
    for cut in arguments.cut:
        copy = Run(folder / f"copy-{cut}")
        import_run(folder / f"export-{cut}", copy)
        ended = summarize(copy, corpus, device, _go_on(recipe, corpus, copy, device, arguments.epochs), batch_size=10)
        row = {"recipe": recipe.name, "settings": " ".join(arguments.set), "dtype": arguments.dtype,
               "averages_only": arguments.averages_only, "seed": recipe.train.seed, "epochs": arguments.epochs,
               "cut": cut, "averaged_from": uncut["averaged_from"]}  # fmt: skip
        for name, summary in (("uncut", uncut), ("cut", ended)):
            row |= {f"{name}_valid_ppl": summary["valid_ppl"], f"{name}_test_ppl": summary["test_ppl"]}
        row["lost"] = math.log(row["cut_test_ppl"] / row["uncut_test_ppl"])  # nats a token, on test
        rows.append(row)
    return rows


def _go_on(recipe: Recipe, corpus: Corpus, run: Run, device: torch.device, epochs: int, resume: bool = True) -> str:
    """Train to an epoch; on resume the precision is the one that the run was started with."""
    if resume:
        recipe = replace(recipe, train=run.recipe().train)
    return train(recipe, corpus, run, device, resume=resume, max_epochs=epochs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="pydoc-mos")
    parser.add_argument("--set", nargs="+", metavar="KEY=VALUE")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--cut", type=int, nargs="+", default=[2, 6], help="Epochs, in order.")
    parser.add_argument("--dtype", choices=["float16", "bfloat16", "float32"], default="float16")
    parser.add_argument("--averages-only", action="store_true")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--csv", type=Path, default=Path("cut_run.csv"))
    arguments = parser.parse_args()
    if arguments.set is None:
        arguments.set = SHORT if arguments.recipe == "pydoc-mos" else []
    chosen = get_recipe(arguments.recipe)
    corpus = load_corpus(chosen.data.corpus, arguments.data_dir, chosen.data.level)
    print(f"{'seed':>6} {'cut':>4} {'uncut valid / test':>20} {'cut valid / test':>20} {'lost, nats':>11}")
    record = Record(arguments.csv)
    rows = record.rows
    begun = provenance(torch.device(arguments.device))
    for seed in arguments.seeds:
        recipe = override(chosen, [*arguments.set, f"train.seed={seed}"])
        with tempfile.TemporaryDirectory() as folder:
            new = [row | begun for row in cut_and_uncut(recipe, corpus, arguments, Path(folder))]
        for row in new:
            record.add(row)
            uncut, cut = (f"{row[f'{n}_valid_ppl']:.3f} / {row[f'{n}_test_ppl']:.3f}" for n in ("uncut", "cut"))
            print(f"{seed:>6} {row['cut']:>4} {uncut:>20} {cut:>20} {row['lost']:>+11.5f}", flush=True)
    if len(arguments.seeds) > 1:
        noise = statistics.stdev({row["seed"]: math.log(row["uncut_test_ppl"]) for row in rows}.values())
        print(f"spread between seeds, uncut (one standard deviation): {noise:.5f} nats")
        for cut in arguments.cut:
            lost = [row["lost"] for row in rows if row["cut"] == cut]
            print(f"cut after {cut}: mean {statistics.mean(lost):+.5f}, largest {max(map(abs, lost)):.5f}")
    print(f"Written to {arguments.csv}")


if __name__ == "__main__":
    main()
