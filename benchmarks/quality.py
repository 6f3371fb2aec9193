"""Does speed cost quality? Trains a recipe fast (mixed precision, CUDA graphs) and plainly (float32, eager).

    python benchmarks/quality.py --data-dir corpora --epochs 20 --seeds 28 29 --csv quality.csv
    python benchmarks/quality.py --data-dir corpora --epochs 5 --seeds 28 --hows plain --csv plain.csv

There is one row per run and epoch, with the validation perplexity. Compare the two ways with the spread between seeds:
dropout masks and window lengths differ between the ways as they do between seeds.
"""

import tempfile
from pathlib import Path
from typing import Any

from highrank.data.corpus import load_corpus
from highrank.recipes import get_recipe, override
from highrank.runs.folder import Run
from highrank.runs.provenance import provenance
from highrank.runs.training import train_run
from measure import make_parser, write_csv
from step import FAST, PLAIN

HOWS = {"fast": (FAST, "mixed"), "plain": (PLAIN, "float32")}


def main() -> None:
    parser = make_parser(__doc__, "quality.csv")
    parser.add_argument("--recipe", default="ptb-mos")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, nargs="+", default=[28, 29])
    parser.add_argument("--hows", choices=HOWS, nargs="+", default=list(HOWS))
    parser.add_argument("--data-dir", type=Path)
    arguments = parser.parse_args()
    device = arguments.device
    base = get_recipe(arguments.recipe)
    corpus = load_corpus(base.data.corpus, arguments.data_dir, base.data.level)
    rows: list[dict[str, Any]] = []
    for how, precision in (HOWS[name] for name in arguments.hows):
        for seed in arguments.seeds:
            recipe = override(base, [f"train.seed={seed}", f"train.precision={precision}"])
            with tempfile.TemporaryDirectory() as folder:
                run = Run(Path(folder) / "run")
                train_run(recipe, corpus, run, device, graphs=how == FAST, max_epochs=arguments.epochs)
                for metrics in run.epochs():
                    numbers = {key: getattr(metrics, key) for key in ("epoch", "train_ppl", "valid_ppl", "seconds")}
                    rows.append(dict(recipe=recipe.name, how=how, seed=seed, **numbers, **provenance(device)))
            write_csv(arguments.csv, rows)
            print(f"{how}, seed {seed}: valid {rows[-1]['valid_ppl']:.2f}", flush=True)
    print(f"Written to {arguments.csv}")


if __name__ == "__main__":
    main()
