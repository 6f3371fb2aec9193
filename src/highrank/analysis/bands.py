"""Where the difference between two models lies: their losses by group of steps.

The paper claims that a high-rank model is better at words that depend on their context. Three groupings bear on that:
how often the word was seen in training, how often it was seen after the word before it (a pair that was never seen
leaves the longer context to go by), and which word comes before.

A gain is B's loss less A's, in nats: positive where A is the better. Its standard error takes lines as the units that
are independent of each other, for the tokens of one line share their context: with d_i a token's gain in a group of n,

    se^2 = C / (C - 1) * sum over the group's C lines of (sum_i d_i - mean)^2 / n^2

Shapes: S steps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MIN_STEPS = 50  # of a previous word that is worth a row: a mean over fewer says little

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Group:
    name: str
    steps: int
    nll_a: float  # means over the group, in nats
    nll_b: float
    gain: float  # nll_b - nll_a: positive where A is the better
    gain_se: float | None  # its standard error; None where all steps are of one line


def grouped(names: Sequence[str], groups: Ints, nll_a: Floats, nll_b: Floats, lines: Ints) -> list[Group]:
    """The groups that have steps, in the order of `names`; step i is of group groups[i] and line lines[i]."""
    if len(groups) == 0:
        return []
    size = len(names)
    steps = np.bincount(groups, minlength=size)
    divisor = np.maximum(steps, 1)
    mean_a, mean_b = (np.bincount(groups, x, size) / divisor for x in (nll_a, nll_b))
    rest = nll_b - nll_a - (mean_b - mean_a)[groups]
    clusters, cluster_of = np.unique(groups * (lines.max() + 1) + lines, return_inverse=True)
    sums = np.bincount(cluster_of, rest)
    of_group = clusters // (lines.max() + 1)
    n_clusters = np.bincount(of_group, minlength=size)
    squares = np.bincount(of_group, sums**2, size)
    found = []
    for i in np.flatnonzero(steps).tolist():
        c, n = int(n_clusters[i]), int(steps[i])
        error = math.sqrt(squares[i] * c / (c - 1)) / n if c > 1 else None
        found.append(Group(names[i], n, float(mean_a[i]), float(mean_b[i]), float(mean_b[i] - mean_a[i]), error))
    return found


def decades(counts: Ints) -> tuple[list[str], Ints]:
    """Counts by powers of ten: names of the bands, the rarest first, and the band of each count."""
    most = len(str(int(counts.max(initial=0))))
    names = ["never", *(f"{10**d:,} to {10 ** (d + 1) - 1:,}" for d in range(most))]
    bands = np.searchsorted(10 ** np.arange(most), counts, side="right")
    return names, bands.astype(np.int64)


def word_counts(train: Ints, words: Ints, vocab_size: int) -> Ints:
    """How often each of `words` occurs in training."""
    return np.bincount(train, minlength=vocab_size)[words].astype(np.int64)


def pair_counts(train: Ints, previous: Ints, words: Ints, vocab_size: int) -> Ints:
    """How often each of `words` followed its previous word in training."""
    pairs, counts = np.unique(train[:-1] * vocab_size + train[1:], return_counts=True)
    wanted = previous * vocab_size + words
    where = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    return np.where(pairs[where] == wanted, counts[where], 0).astype(np.int64)


def by_previous_word(
    words: Sequence[str], previous: Ints, nll_a: Floats, nll_b: Floats, lines: Ints, min_steps: int = MIN_STEPS
) -> list[Group]:
    """One group a previous word of at least `min_steps` steps: those that make A better first, by their whole gain."""
    groups = [g for g in grouped(words, previous, nll_a, nll_b, lines) if g.steps >= min_steps]
    return sorted(groups, key=lambda g: -g.gain * g.steps)
