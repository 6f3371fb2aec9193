"""What does a mixture gain where the rank is no limit? Trains small models of characters with each head.

    python benchmarks/character_heads.py --data-dir corpora      two seeds, about two hours of one CPU core

With 27 characters, a softmax can express every matrix of log-probabilities, so a gain of MoS has another cause. MoC
tells which: it has the same layer of context vectors, but no mixture. A softmax whose output embedding is not tied to
the input's tells whether the tie harms. All models have equally many parameters to within 2 %, sizes in the proportions
of `text8-softmax` and `text8-mos7`, and the same settings but for these sizes. There is one row per head and seed, in
bits per character.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from highrank.data.corpus import load_corpus
from highrank.evaluation.score import bits_per_character
from highrank.recipes import get_recipe, override
from highrank.runs.provenance import provenance
from measure import make_parser, write_csv
from plus import train

SETTINGS = ["train.lr=0.002", "train.batch_size=32", "train.bptt=100"]
HEADS = {
    "softmax": ("text8-softmax", ["model.embed_dim=192", "model.hidden_sizes=192"]),  # 301,659 parameters
    "untied": ("text8-softmax", ["model.embed_dim=192", "model.hidden_sizes=192", "model.tied=false"]),  # 306,843
    "moc": ("text8-mos7", ["model.head=moc", "model.embed_dim=96", "model.hidden_sizes=170"]),  # 300,961
    "mos": ("text8-mos7", ["model.embed_dim=96", "model.hidden_sizes=170"]),  # as many
}


def main() -> None:
    parser = make_parser(__doc__, "character_heads.csv")
    parser.add_argument("--heads", choices=HEADS, nargs="+", default=list(HEADS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--characters", type=int, default=2_000_000, help="length of the training text")
    parser.add_argument("--data-dir", type=Path)
    arguments = parser.parse_args()
    device = arguments.device
    corpus = load_corpus("text8", arguments.data_dir, "char")
    tenth = arguments.characters // 10
    sizes = {"train": arguments.characters, "valid": tenth, "test": tenth}
    corpus = replace(corpus, splits={split: ids[: sizes[split]] for split, ids in corpus.splits.items()})
    rows: list[dict[str, Any]] = []
    for seed in arguments.seeds:
        for head in arguments.heads:
            name, settings = HEADS[head]
            recipe = override(get_recipe(name), [*SETTINGS, *settings, f"train.seed={seed}"])
            summary = train(recipe, corpus, device, arguments.epochs)
            row = dict(
                head=head, seed=seed, recipe=name, settings=" ".join([*SETTINGS, *settings]),
                characters=len(corpus.splits["train"]), parameters=summary.parameters,
                valid_bpc=bits_per_character(summary.valid_ppl), test_bpc=bits_per_character(summary.test_ppl),
                epochs=summary.epochs, best_epoch=summary.best_epoch, seconds=summary.seconds, **provenance(device),
            )  # fmt: skip
            rows.append(row)
            write_csv(arguments.csv, rows)
            print(f"seed {seed}, {head}: valid {row['valid_bpc']:.4f}, test {row['test_bpc']:.4f} bpc", flush=True)
    print(f"Written to {arguments.csv}")


if __name__ == "__main__":
    main()
