"""The algebra of section 2 on random languages: ranks, thresholds, lower bounds, models in closed form."""

import itertools

import pytest
import torch

from highrank.analysis.finite_language.bounds import (
    Ranks,
    mos_by_groups,
    mos_enough,
    ranks,
    softmax_by_svd,
    softmax_floor,
)
from highrank.analysis.finite_language.laboratory import fit_lbfgs, random_model
from highrank.data.synthetic import FiniteLanguage, gaussian_language, low_rank_language

SHAPES = [(64, 32), (20, 40), (6, 6), (100, 9)]


def language(shape, rank, unigram=False, seed=0):
    return low_rank_language(*shape, rank, 1.5, torch.Generator().manual_seed(seed), unigram)


def kl(truth, model):
    return truth.kl(model.log_prob())


@pytest.mark.parametrize("shape", SHAPES)
def test_a_language_has_the_rank_that_was_asked_for(shape):
    for rank, seed in itertools.product(range(2, min(shape) + 1), range(3)):
        assert ranks(language(shape, rank, seed=seed)) == Ranks(rank, rank - 1, rank - 1)
        if rank > 2:  # a direction that all contexts share is one that a bias can say
            assert ranks(language(shape, rank, True, seed)) == Ranks(rank, rank - 1, rank - 2)


def test_ranks_where_shifts_and_bias_cannot_matter():
    full = gaussian_language(5, 40, 1.5, torch.Generator().manual_seed(0))  # five contexts: the columns span everything
    assert ranks(full) == Ranks(5, 5, 4)
    for contexts in (3, 5, 6, 7):  # the mean of equal numbers need not be that number to the last bit
        same = FiniteLanguage(full.log_p[:1].expand(contexts, -1))
        assert ranks(same) == Ranks(1, 1, 0)


@pytest.mark.parametrize("rank", [0, 1, 7])
def test_an_impossible_rank(rank):
    with pytest.raises(ValueError, match="rank must be between 2"):
        language((6, 8), rank)
    with pytest.raises(ValueError, match="rank must be between 3"):
        language((6, 8), 2, unigram=True)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("unigram", [False, True])
def test_the_softmax_is_exact_when_d_is_enough_and_never_before(shape, bias, unigram):
    truth = language(shape, 5, unigram)
    enough = ranks(truth).enough(bias)
    assert enough == 4 - (bias and unigram)
    for d in range(1, 8):
        by_svd, floor = kl(truth, softmax_by_svd(truth, d, bias)), softmax_floor(truth, d, bias)
        assert softmax_by_svd(truth, d, bias).w.shape == (shape[1], d)
        if d >= enough:
            assert abs(by_svd) < 1e-13
            assert floor == 0
        else:
            assert 0 < floor < by_svd


@pytest.mark.parametrize("scale", [0.05, 0.5, 3.0])
def test_the_lower_bound_holds_for_what_an_optimiser_finds(scale):
    """Near-uniform languages are where the bound is tightest."""
    generator = torch.Generator().manual_seed(0)
    truth = low_rank_language(4, 5, 4, scale, generator)
    for d in (1, 2):
        found = [fit_lbfgs(random_model("softmax", (4, 5), 1, d, False, generator), truth, 150) for _ in range(3)]
        assert softmax_floor(truth, d, False) < min(kl(truth, model) for model in found)


def test_the_lower_bound_for_one_bad_row():
    """All error in one context: only the curvature and the rarest word are left between the bound and the truth."""
    log_p = torch.full((8, 4), 0.25, dtype=torch.float64).log()
    log_p[0] = torch.log_softmax(torch.tensor([1e-3, -1e-3, 0, 0], dtype=torch.float64), dim=0)
    truth = FiniteLanguage(log_p)
    uniform = torch.full_like(log_p, 0.25).log()
    assert 0.9 < softmax_floor(truth, 0, False) / truth.kl(uniform) <= 1


@pytest.mark.parametrize("shape", SHAPES)
def test_a_mixture_of_softmaxes_says_any_language(shape):
    words = shape[1]
    truth = gaussian_language(*shape, 2.0, torch.Generator().manual_seed(0))  # full rank
    for k in (1, 2, 3, 4, 7, words, words + 3):
        d = mos_enough(words, k)
        assert mos_by_groups(truth, k, d - 1) is None
        for size in (d, d + 2):
            model = mos_by_groups(truth, k, size)
            assert (model.h.shape, model.w.shape) == ((shape[0], k, size), (words, size))
            assert (model.log_prob() - truth.log_p).abs().max() < 1e-9
    rare = gaussian_language(*shape, 15.0, torch.Generator().manual_seed(0))  # words of probability exp(-60)
    assert rare.log_p.min() < -40
    assert (mos_by_groups(rare, 3, mos_enough(words, 3)).log_prob() - rare.log_p).abs().max() < 1e-9
    assert mos_enough(words, 1) == words - 1
    assert mos_enough(words, words) == 2
