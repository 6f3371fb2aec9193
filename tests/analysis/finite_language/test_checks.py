"""Every check holds on correct numbers and models, and fails if the statement it is about is broken."""

import dataclasses

import pytest
import torch

from highrank.analysis.finite_language import Setup, bounds, check_theory, checks
from highrank.analysis.finite_language.bounds import ranks
from highrank.analysis.finite_language.models import random_model
from highrank.analysis.finite_language.sweep import sweep
from highrank.data.synthetic import FiniteLanguage, gaussian_language
from highrank.errors import UserError

SETUP = Setup(contexts=10, words=8, rank=5, dims=(1, 2), components=3, quick=True)
LANGUAGE = SETUP.language()
RANKS = ranks(LANGUAGE)


def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="module")
def points():
    return sweep(LANGUAGE, SETUP)


def change_fit(point, **changes):
    return dataclasses.replace(point, found=dataclasses.replace(point.found, **changes))


# --- statements about the language ----------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
def test_all_statements_hold(bias):
    assert all(
        check.holds
        for check in checks.check_algebra(LANGUAGE, RANKS, dataclasses.replace(SETUP, components=4, bias=bias))
    )


def test_property_1_fails_for_unnormalised_probabilities():
    assert checks.property_1(FiniteLanguage(LANGUAGE.log_p + 1), generator()).holds is False


def test_property_1_fails_if_nothing_changes_outside(monkeypatch):
    monkeypatch.setattr(checks, "centred", torch.zeros_like)
    assert checks.property_1(LANGUAGE, generator()).holds is False


@pytest.mark.parametrize("change", [-1, 1])
def test_wrong_ranks_fail(change):
    wrong = dataclasses.replace(RANKS, lowest=RANKS.lowest + change, lowest_with_bias=RANKS.lowest + change)
    assert checks.property_2(LANGUAGE, wrong, generator()).holds is False
    assert checks.proposition(LANGUAGE, wrong, False).holds is False
    assert checks.lemma(LANGUAGE, wrong).holds is False


def test_property_2_fails_for_a_wrong_rank_of_a():
    wrong = dataclasses.replace(RANKS, a=RANKS.a + 1)
    assert checks.property_2(LANGUAGE, wrong, generator()).holds is False


def test_property_2_holds_for_few_contexts_whose_columns_span_every_shift():
    language = gaussian_language(5, 40, 1.5, generator())
    assert checks.property_2(language, ranks(language), generator()).holds is True


def test_corollary_fails_for_too_high_a_rank():
    assert checks.corollary(LANGUAGE, dataclasses.replace(RANKS, a=RANKS.a + 2), False).holds is False


def test_corollary_cannot_be_shown_without_a_smaller_d():
    language = Setup(contexts=3, words=8, rank=2).language()
    assert checks.corollary(language, ranks(language), False).holds is None


def test_mos_is_free_fails_for_another_model(monkeypatch):
    other = random_model("mos", LANGUAGE, 4, 3, False, generator())
    monkeypatch.setattr(bounds, "mos_by_groups", lambda *_: other)
    assert checks.mos_is_free(LANGUAGE, RANKS, 4, False).holds is False


def test_mos_is_free_cannot_be_shown_where_a_softmax_is_enough():
    assert checks.mos_is_free(LANGUAGE, RANKS, 2, False).holds is None


# --- statements about fitted models ---------------------------------------------------------------------------------


def test_a_fit_below_the_bound_fails(points):
    points = [dataclasses.replace(points[0], lower_bound=1.0), *points[1:]]
    assert checks.bound_holds(4, points).holds is False


@pytest.mark.parametrize("index", [0, 1], ids=["softmax", "moc"])
def test_a_rank_above_the_bound_fails(points, index):
    points = list(points)
    points[index] = change_fit(points[index], rank=1 + 1 + 1)
    assert checks.moc_is_bound(4, points, 1).holds is False


def test_a_moc_that_is_not_a_softmax_fails(points):
    points = [dataclasses.replace(p, collapse_error=1e-3) if p.head == "moc" else p for p in points]
    assert checks.moc_is_bound(4, points, 1).holds is False


def test_a_mos_of_low_rank_fails(points):
    points = [change_fit(p, rank=1) if p.head == "mos" else p for p in points]
    assert checks.mos_exceeds_the_bound(4, 8, points, 1).holds is False


def test_high_ranks_cannot_be_shown_where_d_is_too_large(points):
    assert checks.mos_exceeds_the_bound(4, 2, points, 1).holds is None


def test_high_ranks_cannot_be_shown_where_a_softmax_is_enough(points):
    points = [change_fit(p, rank=1) if p.head == "mos" else p for p in points]
    assert checks.mos_exceeds_the_bound(1, 8, points, 1).holds is None


# --- the whole laboratory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [2, 3])
def test_no_check_fails_at_small_sizes(rank):
    report = check_theory(Setup(contexts=6, words=8, rank=rank, dims=(1, 2), quick=True))
    assert not any(check.holds is False for check in report.checks)


def test_progress_is_in_proportion_to_the_work():
    calls = []
    setup = Setup(contexts=2, words=2, dims=(1,), components=2, quick=True)
    check_theory(setup, on_progress=lambda *a: calls.append(a))
    assert calls == [(100, 400), (200, 400), (400, 400)]


@pytest.mark.parametrize("rank", [2, 3, 5, 16, 64])
@pytest.mark.parametrize("quick", [False, True])
def test_default_dims_cover_the_rank(rank, quick):
    dims = Setup(contexts=64, words=64, rank=rank, quick=quick).dims
    assert list(dims) == sorted(set(dims))
    assert {1, max(1, rank - 2), rank - 1, rank} <= set(dims)
    assert len(dims) <= 15


@pytest.mark.parametrize(
    "changes",
    [
        {"rank": 33},
        {"rank": 1},
        {"rank": 2, "unigram": True},
        {"dims": (0,)},
        {"dims": (65,)},  # beyond both contexts and words
        {"components": 1},
        {"components": 33},
    ],
    ids=str,
)
def test_impossible_setups_raise(changes):
    with pytest.raises(UserError):
        Setup(**changes)
