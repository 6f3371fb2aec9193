"""Check the perplexity of per-token log-probabilities, and mix those of several models.

    highrank evaluate RUN --log-probs a.npy                 write them; with --dynamic or --cache, those of that method
    python benchmarks/mix_log_probs.py a.npy                perplexity of one model
    python benchmarks/mix_log_probs.py a.npy b.npy          ... and of p = (p_a + p_b) / 2
    python benchmarks/mix_log_probs.py a.npy b.npy --weights 0.7 0.3

All files must hold the log-probabilities of the same tokens. results/log_probs/ has those of our models on Penn
Treebank's test set: all tokens but the first, one <eos> per line, 82,429 in all.
"""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np


def mix(log_probs: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    """Return the log-probabilities of the mixture whose weights are `weights`, divided by their sum."""
    shares = np.log(np.asarray(weights, dtype=np.float64) / sum(weights))
    return np.logaddexp.reduce([share + own.astype(np.float64) for share, own in zip(shares, log_probs, strict=True)])


def perplexity(log_probs: np.ndarray) -> float:
    return math.exp(-log_probs.mean(dtype=np.float64))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--weights", nargs="+", type=float, help="one per file; default: all equal")
    arguments = parser.parse_args()
    log_probs = [np.load(path, allow_pickle=False) for path in arguments.files]
    weights = arguments.weights or [1.0] * len(log_probs)
    if len({len(own) for own in log_probs}) > 1:
        parser.error("the files hold different numbers of tokens")
    if len(weights) != len(log_probs) or min(weights) <= 0:
        parser.error("give one positive weight per file")
    for path, own in zip(arguments.files, log_probs, strict=True):
        print(f"{perplexity(own):9.3f}  {path}  ({len(own):,} tokens)")
    if len(log_probs) > 1:
        print(f"{perplexity(mix(log_probs, weights)):9.3f}  mixture")


if __name__ == "__main__":
    main()
