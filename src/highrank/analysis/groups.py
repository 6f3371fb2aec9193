"""Losses of two models by group of steps, with standard errors.

The paper claims that a high-rank model is better at words that depend on their context. Three groupings test this:
how often the word occurs in training, how often it occurs there after its previous word (for a pair that never occurs,
only the longer context can help), and which word comes before.

A gain is B's loss minus A's, in nats, so it is positive where A is better. Its standard error treats lines as
independent, because the tokens of one line share their context. With d_i the gains of the n tokens in a group,

    se^2 = C / (C - 1) * sum over the group's C lines of (sum_i (d_i - mean d))^2 / n^2

Shapes: S steps.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MIN_STEPS = 50  # previous words with fewer steps get no row: their mean is mostly noise

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Group:
    """Mean losses of two models over a group of steps."""

    name: str
    steps: int
    nll_a: float  # nats per token
    nll_b: float
    gain: float  # nll_b - nll_a: positive where A is better
    gain_se: float | None  # standard error; None if all steps are in one line


def group_losses(names: Sequence[str], groups: Ints, nll_a: Floats, nll_b: Floats, lines: Ints) -> list[Group]:
    """Average the losses per group; step i belongs to group groups[i] and line lines[i]. Empty groups are left out."""
    if len(groups) == 0:
        return []
    size = len(names)
    steps = np.bincount(groups, minlength=size)
    divisor = np.maximum(steps, 1)
    mean_a = np.bincount(groups, nll_a, size) / divisor
    mean_b = np.bincount(groups, nll_b, size) / divisor
    residual = nll_b - nll_a - (mean_b - mean_a)[groups]
    # One cluster per (group, line) pair that occurs.
    clusters, cluster_of_step = np.unique(groups * (lines.max() + 1) + lines, return_inverse=True)
    cluster_sums = np.bincount(cluster_of_step, residual)
    group_of_cluster = clusters // (lines.max() + 1)
    n_clusters = np.bincount(group_of_cluster, minlength=size)
    squares = np.bincount(group_of_cluster, cluster_sums**2, size)
    result = []
    for i in np.flatnonzero(steps).tolist():
        c, n = int(n_clusters[i]), int(steps[i])
        error = math.sqrt(squares[i] * c / (c - 1)) / n if c > 1 else None
        result.append(Group(names[i], n, float(mean_a[i]), float(mean_b[i]), float(mean_b[i] - mean_a[i]), error))
    return result


def decades(counts: Ints) -> tuple[list[str], Ints]:
    """Sort counts into powers of ten: return the names of the bands, rarest first, and the band of each count."""
    n_bands = len(str(int(counts.max(initial=0))))
    names = ["never", *(f"{10**d:,} to {10 ** (d + 1) - 1:,}" for d in range(n_bands))]
    bands = np.searchsorted(10 ** np.arange(n_bands), counts, side="right")
    return names, bands.astype(np.int64)


def training_counts(pieces: Iterable[Ints], previous: Ints, words: Ints, vocab_size: int) -> tuple[Ints, Ints]:
    """Count how often each of `words` occurs in training, and how often it follows its previous word there.

    `pieces` are the training text, one after the other: it need not fit into memory.
    """
    of_word = np.zeros(vocab_size, dtype=np.int64)
    pairs, pair_of_step = np.unique(previous * vocab_size + words, return_inverse=True)
    of_pair = np.zeros(len(pairs), dtype=np.int64)
    last = np.zeros(0, dtype=np.int64)  # the last token of the piece before
    for piece in pieces:
        of_word += np.bincount(piece, minlength=vocab_size)
        text = np.concatenate([last, piece])
        last = piece[-1:]
        seen = text[:-1] * vocab_size + text[1:]
        index = np.minimum(np.searchsorted(pairs, seen), len(pairs) - 1)
        of_pair += np.bincount(index[pairs[index] == seen], minlength=len(pairs))
    return of_word[words], of_pair[pair_of_step]


def group_by_previous_word(
    words: Sequence[str], previous: Ints, nll_a: Floats, nll_b: Floats, lines: Ints, min_steps: int = MIN_STEPS
) -> list[Group]:
    """Group steps by previous word (at least `min_steps` steps each), sorted by total gain, A's largest gain first."""
    groups = [g for g in group_losses(words, previous, nll_a, nll_b, lines) if g.steps >= min_steps]
    return sorted(groups, key=lambda g: -g.gain * g.steps)
