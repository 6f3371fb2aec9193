"""BLEU of generated responses: smoothed sentence BLEU as precision and recall, and corpus BLEU.

Notation, for a hypothesis of l words: m_n is how many of its n-grams match the reference (each at most as often as the
reference has it), and l_n = l - n + 1 is how many n-grams it has.

    BLEU-N = BP * (p_1 ... p_N)^(1/N)        BP = exp(min(0, 1 - reference length / hypothesis length))

Sentence BLEU uses smoothing 7 of Chen and Cherry (2014), their smoothing 4 followed by their smoothing 5, on counts:

    4.  The i-th order with l_n > 0 but m_n = 0 gets the count (ln(l) / 5)^i instead: shorter sentences get less.
    5.  m'_0 = m_1 + 1  and  m'_n = (m'_(n-1) + m_n + m_(n+1)) / 3;  then p_n = m'_n / l_n.

We complete that definition as follows. Both steps include order N + 1, so p_n does not depend on N. Orders that the
hypothesis is too short for (l_n = 0) are left out of the geometric mean. A hypothesis that shares no word with the
reference scores 0. With these rules no score exceeds 1, and a perfect match of any length scores 1.

NLTK's `method7` averages precisions where Chen and Cherry average counts, so its scores exceed 1 for good hypotheses;
it also takes 5-grams as the order above N whatever N is, and in smoothing 4 counts ln(l) / (5 2^i) for the i-th order.
"""

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from statistics import geometric_mean
from typing import NamedTuple

import numpy as np

Sentence = Sequence[Hashable]  # words or word ids

MAX_ORDER = 4
SMOOTHING_4 = 5.0  # the constant K of Chen and Cherry's smoothing 4


class BleuScores(NamedTuple):
    """Mean sentence BLEU over contexts; entry N - 1 is BLEU-N."""

    precision: tuple[float, ...]  # how good the hypotheses are: mean over them of the best reference's score
    recall: tuple[float, ...]  # how well the references are covered: mean over them of the best hypothesis's score


class NgramCounts(NamedTuple):
    matches: list[int]  # m_n, from n = 1 on
    totals: list[int]  # l_n


def precision_recall(hypotheses: Sequence[Sequence[Sentence]], references: Sequence[Sequence[Sentence]]) -> BleuScores:
    """Average precision and recall (Zhao et al. 2017) over contexts, each with its hypotheses and references."""
    precision = np.zeros(MAX_ORDER)
    recall = np.zeros(MAX_ORDER)
    for own_hypotheses, own_references in zip(hypotheses, references, strict=True):
        if not own_hypotheses or not own_references:
            raise ValueError("every context needs at least one hypothesis and one reference")
        scores = np.array([[sentence_bleu(h, r) for r in own_references] for h in own_hypotheses])  # (H, R, MAX_ORDER)
        precision += scores.max(axis=1).mean(axis=0)
        recall += scores.max(axis=0).mean(axis=0)
    n_contexts = max(1, len(hypotheses))
    return BleuScores(tuple((precision / n_contexts).tolist()), tuple((recall / n_contexts).tolist()))


def sentence_bleu(hypothesis: Sentence, reference: Sentence) -> list[float]:
    """Return the smoothed BLEU-1 to BLEU-4 of one hypothesis against one reference."""
    matches, totals = count_ngrams(hypothesis, [reference], MAX_ORDER + 1)
    if matches[0] == 0:
        return [0.0] * MAX_ORDER
    precisions = smooth_precisions(matches, totals)
    penalty = brevity_penalty(len(hypothesis), len(reference))
    return [penalty * geometric_mean(precisions[:order]) for order in range(1, MAX_ORDER + 1)]


def smooth_precisions(matches: Sequence[float], totals: Sequence[int]) -> list[float]:
    """Return p_1, p_2, ... of the orders that have n-grams, from counts of orders 1 to MAX_ORDER + 1."""
    smoothed = list(matches)
    replacement = 1.0
    for i, total in enumerate(totals):
        if total > 0 and matches[i] == 0:
            replacement *= math.log(totals[0]) / SMOOTHING_4
            smoothed[i] = replacement
    precisions = []
    previous = smoothed[0] + 1
    for count, following, total in zip(smoothed, smoothed[1:], totals, strict=False):
        if total == 0:
            break
        previous = (previous + count + following) / 3
        precisions.append(previous / total)
    return precisions


def corpus_bleu(hypotheses: Sequence[Sentence], references: Sequence[Sequence[Sentence]]) -> float:
    """Return the BLEU-4 of a whole corpus, between 0 and 1: one hypothesis and one or more references per context.

    Counts and lengths are summed over the corpus. The i-th order without a match counts 2^-i matches. This is
    sacreBLEU's score, divided by 100, with its default smoothing and without its tokeniser.
    """
    matches = [0] * MAX_ORDER
    totals = [0] * MAX_ORDER
    hypothesis_length = 0
    reference_length = 0
    for hypothesis, own_references in zip(hypotheses, references, strict=True):
        counts = count_ngrams(hypothesis, own_references, MAX_ORDER)
        matches = [a + b for a, b in zip(matches, counts.matches, strict=True)]
        totals = [a + b for a, b in zip(totals, counts.totals, strict=True)]
        hypothesis_length += len(hypothesis)
        # The closest length; of two equally close, the shorter.
        reference_length += min((abs(len(r) - len(hypothesis)), len(r)) for r in own_references)[1]
    if matches[0] == 0 or totals[-1] == 0:
        return 0.0
    precisions = []
    replacement = 1.0
    for match, total in zip(matches, totals, strict=True):
        if match == 0:
            replacement /= 2
        precisions.append((match or replacement) / total)
    return brevity_penalty(hypothesis_length, reference_length) * geometric_mean(precisions)


def count_ngrams(hypothesis: Sentence, references: Sequence[Sentence], max_order: int) -> NgramCounts:
    """Count n-grams of orders 1 to `max_order`; an n-gram matches at most as often as any one reference has it."""
    matches = []
    totals = []
    for order in range(1, max_order + 1):
        own = _ngrams(hypothesis, order)
        allowed: Counter[tuple[Hashable, ...]] = Counter()
        for reference in references:
            allowed |= _ngrams(reference, order)  # the larger of both counts
        matches.append((own & allowed).total())  # the smaller of both counts
        totals.append(own.total())
    return NgramCounts(matches, totals)


def brevity_penalty(hypothesis_length: int, reference_length: int) -> float:
    """Return BP, which is below 1 where hypotheses are shorter than references; 0 for an empty hypothesis."""
    if hypothesis_length == 0:
        return 0.0
    return math.exp(min(0.0, 1 - reference_length / hypothesis_length))


def _ngrams(sentence: Sentence, order: int) -> Counter[tuple[Hashable, ...]]:
    return Counter(zip(*(sentence[start:] for start in range(order)), strict=False))
