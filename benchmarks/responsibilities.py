"""How many components of a mixture matter for a token? Counts responsibilities of a trained run above thresholds.

    python benchmarks/responsibilities.py RUN --data-dir corpora --csv results/benchmarks/responsibilities_cpu.csv

The responsibility of component k is its share pi_k p_k(y) / p(y) in the probability of the word y that follows. The row
of a threshold has the mean number of components at or above it, per token, and their share of the total.
"""

import argparse
from pathlib import Path

import torch

from highrank.runs.corpora import run_corpus
from highrank.runs.provenance import provenance
from highrank.runs.text_model import load
from measure import write_csv
from peers import responsibilities

THRESHOLDS = (1 / 16, 1 / 32, 1 / 64, 1 / 256)


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--tokens", type=int, default=3000)
    parser.add_argument("--csv", type=Path)
    arguments = parser.parse_args()
    model = load(arguments.run).model.eval()
    ids = run_corpus(arguments.run, arguments.data_dir).ids("test", arguments.tokens + 1)
    g = model.backbone(ids[:-1, None], model.initial_state(1)).g[:, 0]
    log_pi, h = model.head.log_components(g)  # (T, K), (T, K, D)
    r = responsibilities(h, log_pi, model.head.weight, model.head.bias, ids[1:])  # (T, K)
    rows = [
        {
            "threshold": threshold,
            "components": (r >= threshold).sum(1).double().mean().item(),
            "share": torch.where(r >= threshold, r, 0.0).sum(1).mean().item(),
            "tokens": len(r),
            **provenance(torch.device("cpu")),
        }
        for threshold in THRESHOLDS
    ]
    for row in rows:
        print(f"at or above {row['threshold']:.4f}: {row['components']:.2f} of {r.shape[1]}, {row['share']:.1%}")
    if arguments.csv:
        write_csv(arguments.csv, rows)


if __name__ == "__main__":
    main()
