"""Does a run lose anything when it is exported and continued elsewhere? Compares it with the same run uninterrupted.

    python benchmarks/cut_run.py          pydoc-mos on a CPU, three seeds, cut before and after averaging starts
    python benchmarks/cut_run.py --recipe ptb-mos --set --data-dir corpora --epochs 90 --cut 30 60 --device cuda

For every seed one run is trained to the end. At every cut it is exported, and an import of that export is trained to
the end as well. Compare the loss of a copy with the spread between seeds, which any run has.
"""

import argparse
import math
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from highrank.data.corpus import Corpus, load_corpus
from highrank.recipes import get_recipe, override
from highrank.recipes.recipe import Recipe
from highrank.runs.export import export_run, import_run
from highrank.runs.folder import Run
from highrank.runs.provenance import provenance
from highrank.runs.record import summarize
from highrank.runs.training import train_run
from measure import make_parser, write_csv

# Averaging starts with the fifth epoch, by finetuning, so that a short run of pydoc-mos has both kinds of epochs.
SHORT = ["train.averaging=nt-asgd", "train.max_epochs=4", "train.finetunes=1", "train.finetune_max_epochs=1000"]
SHARD_BYTES = 15 * 10**6
Row = dict[str, Any]


def compare_runs(recipe: Recipe, corpus: Corpus, arguments: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Train one seed uncut and from an export at every cut; yield one row per cut."""
    device = arguments.device

    def train_to(run: Run, epochs: int, resume: bool = True) -> str:
        # On resume the precision is the one that the run was started with.
        resumed = replace(recipe, train=run.recipe().train) if resume else recipe
        return train_run(resumed, corpus, run, device, resume=resume, max_epochs=epochs)

    whole = Run(folder / "whole")
    for i, cut in enumerate(arguments.cut):
        train_to(whole, cut, resume=i > 0)
        dtype = getattr(torch, arguments.dtype)
        export_run(whole, folder / f"export-{cut}", dtype, SHARD_BYTES, arguments.averages_only)
    uncut = summarize(whole, corpus, device, train_to(whole, arguments.epochs))
    for cut in arguments.cut:
        copy = Run(folder / f"copy-{cut}")
        import_run(folder / f"export-{cut}", copy)
        continued = summarize(copy, corpus, device, train_to(copy, arguments.epochs))
        yield dict(
            recipe=recipe.name, settings=" ".join(arguments.set), dtype=arguments.dtype,
            averages_only=arguments.averages_only, seed=recipe.train.seed, epochs=arguments.epochs, cut=cut,
            averaged_from=uncut.averaged_from, uncut_valid_ppl=uncut.valid_ppl, uncut_test_ppl=uncut.test_ppl,
            cut_valid_ppl=continued.valid_ppl, cut_test_ppl=continued.test_ppl,
            lost=math.log(continued.test_ppl / uncut.test_ppl), **provenance(device),
        )  # fmt: skip


def main() -> None:
    parser = make_parser(__doc__, "cut_run.csv")
    parser.add_argument("--recipe", default="pydoc-mos")
    parser.add_argument("--set", nargs="*", metavar="KEY=VALUE", default=SHORT)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--cut", type=int, nargs="+", default=[2, 6], help="epochs, in increasing order")
    parser.add_argument("--dtype", choices=["float16", "bfloat16", "float32"], default="float16")
    parser.add_argument("--averages-only", action="store_true")
    parser.add_argument("--data-dir", type=Path)
    arguments = parser.parse_args()
    base = get_recipe(arguments.recipe)
    corpus = load_corpus(base.data.corpus, arguments.data_dir, base.data.level)
    rows: list[Row] = []
    for seed in arguments.seeds:
        recipe = override(base, [*arguments.set, f"train.seed={seed}"])
        with tempfile.TemporaryDirectory() as folder:
            for row in compare_runs(recipe, corpus, arguments, Path(folder)):
                rows.append(row)
                write_csv(arguments.csv, rows)
                print(f"seed {seed}, cut after {row['cut']}: lost {row['lost']:+.5f} nats per token", flush=True)
    for cut in arguments.cut:
        lost = [row["lost"] for row in rows if row["cut"] == cut]
        print(f"cut after {cut}: lost {statistics.mean(lost):+.5f} nats on average, {max(map(abs, lost)):.5f} at most")
    print(f"Written to {arguments.csv}")


if __name__ == "__main__":
    main()
