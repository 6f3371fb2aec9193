import math
import random

import pytest

from highrank.evaluation.bleu import (
    BleuScores,
    brevity_penalty,
    corpus_bleu,
    count_ngrams,
    precision_recall,
    sentence_bleu,
)

SENTENCES = [
    ["the", "cat", "sat", "on", "the", "mat"],
    ["the", "cat", "is", "on", "the", "mat"],
    ["there", "is", "a", "cat", "on", "the", "mat", "and", "a", "dog", "under", "it"],
    ["a", "dog"],
    ["yeah"],
]


def random_sentence(rng, words=6, shortest=1):
    """Few distinct words, so that long n-grams match too."""
    return [rng.choice("abcdef"[:words]) for _ in range(rng.randrange(shortest, 14))]


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 30, 200])
def test_a_perfect_match_scores_one_at_any_length(length):
    sentence = list(range(length))
    assert sentence_bleu(sentence, sentence) == pytest.approx([1, 1, 1, 1], abs=1e-12)


def test_a_hand_worked_sentence():
    # Unigrams: the, cat, on, the, mat match 5 of 6; bigrams: the cat, on the, the mat 3 of 5; trigrams: on the mat
    # 1 of 4; no 4-gram of 3 and no 5-gram of 2: (ln 6 / 5) and its square.
    m1, m2, m3, m4, m5 = 5, 3, 1, math.log(6) / 5, (math.log(6) / 5) ** 2
    s1 = ((m1 + 1) + m1 + m2) / 3
    s2 = (s1 + m2 + m3) / 3
    s3 = (s2 + m3 + m4) / 3
    s4 = (s3 + m4 + m5) / 3
    p = [s1 / 6, s2 / 5, s3 / 4, s4 / 3]
    expected = [math.prod(p[:n]) ** (1 / n) for n in (1, 2, 3, 4)]
    assert sentence_bleu(SENTENCES[1], SENTENCES[0]) == pytest.approx(expected, abs=1e-12)


def test_a_short_hypothesis_pays_the_brevity_penalty():
    reference = ["a", "dog", "runs", "home"]
    assert sentence_bleu(["a"], reference) == pytest.approx([math.exp(-3)] * 4)  # p_1 = (2 + 1 + 0) / 3
    # p_1 = (3 + 2 + 1) / 3 / 2 = 1, p_2 = (2 + 1 + 0) / 3 = 1: only the penalty is left.
    assert sentence_bleu(["a", "dog"], reference) == pytest.approx([math.exp(-1)] * 4)


@pytest.mark.parametrize("hypothesis", [[], ["x"], ["x", "y", "z"]])
def test_a_hypothesis_without_a_common_word_scores_zero(hypothesis):
    assert sentence_bleu(hypothesis, ["a", "dog"]) == [0, 0, 0, 0]


def test_no_score_exceeds_one():
    rng = random.Random(0)
    for _ in range(2000):
        scores = sentence_bleu(random_sentence(rng, words=3), random_sentence(rng, words=3))
        assert all(0 <= score <= 1 + 1e-12 for score in scores)


def test_precision_averages_over_hypotheses_and_recall_over_references():
    a, b, c = SENTENCES[:3]
    scores = precision_recall([[a, b]], [[a, c]])
    for n in range(4):
        b_best = max(sentence_bleu(b, a)[n], sentence_bleu(b, c)[n])
        c_best = max(sentence_bleu(a, c)[n], sentence_bleu(b, c)[n])
        assert scores.precision[n] == pytest.approx((1 + b_best) / 2)
        assert scores.recall[n] == pytest.approx((1 + c_best) / 2)


def test_contexts_are_averaged():
    scores = precision_recall([[["a"]], [["x"]]], [[["a"]], [["b"], ["c"]]])
    assert scores == BleuScores((0.5,) * 4, (0.5,) * 4)


def test_a_context_without_hypotheses_is_an_error():
    with pytest.raises(ValueError):
        precision_recall([[]], [[["a"]]])


def test_corpus_bleu_is_zero_without_matches_or_without_long_sentences():
    assert corpus_bleu([["a", "b", "c", "d"]], [[["x", "y", "z"]]]) == 0
    assert corpus_bleu([["a"]], [[["a"]]]) == 0
    assert corpus_bleu([[]], [[["a"]]]) == 0


def test_counts_and_brevity_penalty_equal_nltk():
    nltk = pytest.importorskip("nltk.translate.bleu_score")
    rng = random.Random(1)
    for _ in range(300):
        hypothesis = random_sentence(rng)
        references = [random_sentence(rng) for _ in range(rng.randrange(1, 4))]
        counts = count_ngrams(hypothesis, references, 5)
        for n in range(1, 6):
            expected = nltk.modified_precision(references, hypothesis, n)
            assert counts.matches[n - 1] == expected.numerator
            assert max(1, counts.totals[n - 1]) == expected.denominator
        closest = nltk.closest_ref_length(references, len(hypothesis))
        expected = nltk.brevity_penalty(closest, len(hypothesis))
        assert brevity_penalty(len(hypothesis), closest) == pytest.approx(expected)


def test_corpus_bleu_equals_nltk_where_every_order_matches():
    nltk = pytest.importorskip("nltk.translate.bleu_score")
    rng = random.Random(2)
    # NLTK counts one n-gram in a sentence that is too short for any.
    hypotheses = [random_sentence(rng, words=2, shortest=4) for _ in range(40)]
    references = [[random_sentence(rng, words=2), random_sentence(rng, words=2)] for _ in range(40)]
    assert corpus_bleu(hypotheses, references) == pytest.approx(nltk.corpus_bleu(references, hypotheses), abs=1e-12)


@pytest.mark.parametrize("words", [2, 6])
@pytest.mark.parametrize("n_sentences", [1, 3, 40])
def test_corpus_bleu_equals_sacrebleu(words, n_sentences):
    sacrebleu = pytest.importorskip("sacrebleu")
    rng = random.Random(words)
    for _ in range(30):
        hypotheses = [random_sentence(rng, words) for _ in range(n_sentences)]
        references = [[random_sentence(rng, words), random_sentence(rng, words)] for _ in range(n_sentences)]
        streams = [[" ".join(own[i]) for own in references] for i in range(2)]
        expected = sacrebleu.corpus_bleu([" ".join(h) for h in hypotheses], streams, tokenize="none").score
        assert 100 * corpus_bleu(hypotheses, references) == pytest.approx(expected, abs=1e-9)
