"""How do the BLEU scores of dialog models depend on the length penalty of beam search?

    python benchmarks/dialog_length_penalty.py RUN [RUN ...] --data-dir corpora

Scores every run on its test dialogs with penalties of 0 (the paper's, as far as it says), 0.5 and 1.
"""

import statistics
from dataclasses import replace
from pathlib import Path

from highrank.data.dialog import DialogCorpus
from highrank.evaluation.dialog import generate_responses
from highrank.runs.corpora import run_data
from highrank.runs.dialog import load_dialog
from highrank.runs.provenance import provenance
from measure import make_parser, write_csv

PENALTIES = (0.0, 0.5, 1.0)


def main() -> None:
    parser = make_parser(__doc__, "dialog_length_penalty.csv")
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--data-dir", type=Path)
    arguments = parser.parse_args()
    device = arguments.device
    rows = []
    for run in arguments.runs:
        loaded = load_dialog(run, device)
        corpus = run_data(run, arguments.data_dir)
        assert isinstance(corpus, DialogCorpus)
        batches = loaded.batches(corpus, "test")
        for penalty in PENALTIES:
            decoding = replace(loaded.recipe.decoding, length_penalty=penalty)
            responses = generate_responses(loaded.model, batches, decoding)
            bleu = responses.bleu()
            row = {
                "recipe": loaded.recipe.name,
                "seed": loaded.recipe.train.seed,
                "length_penalty": penalty,
                "mean_words": statistics.mean(len(words) for own in responses.hypotheses for words in own),
                "distinct_first": len({tuple(own[0]) for own in responses.hypotheses}),
                **{f"precision_{n}": value for n, value in enumerate(bleu.precision, 1)},
                **{f"recall_{n}": value for n, value in enumerate(bleu.recall, 1)},
                "corpus_bleu": responses.corpus_bleu(),
            }
            print(*(f"{value:.4g}" if isinstance(value, float) else value for value in row.values()), flush=True)
            rows.append(row | provenance(device))
            write_csv(arguments.csv, rows)


if __name__ == "__main__":
    main()
