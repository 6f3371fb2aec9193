"""Losses by group: means, standard errors clustered by line, and the counts behind the bands."""

import itertools

import numpy as np
import pytest

from highrank.analysis.groups import decades, group_by_previous_word, group_losses, training_counts


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_means_and_standard_errors_match_their_definition(rng):
    n = 400
    groups, lines = rng.integers(0, 5, n), np.sort(rng.integers(0, 60, n))
    a, b = rng.normal(5, 1, n), rng.normal(5.2, 1, n)
    found = {g.name: g for g in group_losses(["v", "w", "x", "y", "z", "nobody"], groups, a, b, lines)}
    assert list(found) == ["v", "w", "x", "y", "z"]
    for i, name in enumerate("vwxyz"):
        mine = groups == i
        gain = (b - a)[mine]
        sums = [(gain[lines[mine] == line] - gain.mean()).sum() for line in np.unique(lines[mine])]
        c = len(sums)
        assert found[name].steps == mine.sum()
        assert found[name].nll_a == pytest.approx(a[mine].mean())
        assert found[name].gain == pytest.approx(gain.mean())
        assert found[name].gain_se == pytest.approx(np.sqrt(c / (c - 1) * np.square(sums).sum()) / len(gain))


def test_repeating_every_token_in_its_line_keeps_the_standard_error(rng):
    a, b = rng.normal(size=50), rng.normal(size=50)
    (once,) = group_losses(["all"], np.zeros(50, dtype=np.int64), a, b, np.arange(50))
    (twice,) = group_losses(["all"], np.zeros(100, dtype=np.int64), a.repeat(2), b.repeat(2), np.arange(50).repeat(2))
    assert twice.gain_se == pytest.approx(once.gain_se)


def test_a_group_within_one_line_has_no_standard_error():
    (found,) = group_losses(["all"], np.zeros(3, dtype=np.int64), np.ones(3), np.zeros(3), np.full(3, 7))
    assert found.gain == -1
    assert found.gain_se is None


def test_no_steps_give_no_groups():
    none = np.zeros(0, dtype=np.int64)
    assert group_losses(["all"], none, np.zeros(0), np.zeros(0), none) == []


def test_decades_are_powers_of_ten():
    names, bands = decades(np.array([0, 1, 9, 10, 99, 100, 1234]))
    assert names == ["never", "1 to 9", "10 to 99", "100 to 999", "1,000 to 9,999"]
    assert bands.tolist() == [0, 1, 1, 2, 2, 3, 4]
    assert decades(np.array([0, 0]))[1].tolist() == [0, 0]


@pytest.mark.parametrize("size", [1, 7, 199, 500])
def test_counts_match_brute_force(rng, size):
    train, previous, words = rng.integers(0, 6, 200), rng.integers(0, 7, 40), rng.integers(0, 7, 40)
    pairs = list(itertools.pairwise(train.tolist()))
    pieces = np.split(train, range(size, 200, size))
    word_counts, pair_counts = training_counts(pieces, previous, words, 7)
    assert word_counts.tolist() == [(train == w).sum() for w in words]
    expected = [pairs.count((p, w)) for p, w in zip(previous, words, strict=True)]
    assert pair_counts.tolist() == expected
    assert max(expected) > 0 == min(expected)


def test_previous_words_are_sorted_by_total_gain():
    previous = np.array([0] * 4 + [1] * 10 + [2] * 3)
    gain = np.array([1.0] * 4 + [0.5] * 10 + [-9.0] * 3)
    found = group_by_previous_word(["few", "many", "bad"], previous, np.zeros(17), gain, np.arange(17), min_steps=3)
    assert [g.name for g in found] == ["many", "few", "bad"]
    found = group_by_previous_word(["few", "many", "bad"], previous, np.zeros(17), gain, np.arange(17), min_steps=4)
    assert [g.name for g in found] == ["many", "few"]
