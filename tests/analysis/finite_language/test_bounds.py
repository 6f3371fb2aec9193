import itertools

import pytest
import torch

from highrank.analysis.finite_language.bounds import (
    MatrixRanks,
    mos_by_groups,
    mos_enough,
    ranks,
    softmax_by_svd,
    softmax_floor,
)
from highrank.analysis.finite_language.models import fit_lbfgs, random_model
from highrank.data.synthetic import FiniteLanguage, gaussian_language, low_rank_language

SHAPES = [(64, 32), (20, 40), (6, 6), (100, 9)]


def make_language(shape, rank, unigram=False, seed=0):
    return low_rank_language(*shape, rank, 1.5, torch.Generator().manual_seed(seed), unigram)


def kl(truth, model):
    return truth.kl(model.log_prob())


@pytest.mark.parametrize("shape", SHAPES)
def test_a_language_has_its_nominal_rank(shape):
    for rank, seed in itertools.product(range(2, min(shape) + 1), range(3)):
        assert ranks(make_language(shape, rank, seed=seed)) == MatrixRanks(rank, rank - 1, rank - 1)
        if rank > 2:  # an output bias can represent a direction that all contexts share
            assert ranks(make_language(shape, rank, True, seed)) == MatrixRanks(rank, rank - 1, rank - 2)


def test_few_contexts_span_every_shift():
    full = gaussian_language(5, 40, 1.5, torch.Generator().manual_seed(0))
    assert ranks(full) == MatrixRanks(5, 5, 4)


@pytest.mark.parametrize("contexts", [3, 5, 6, 7])  # the mean of equal numbers may differ from them by round-off
def test_equal_contexts_have_rank_one(contexts):
    full = gaussian_language(5, 40, 1.5, torch.Generator().manual_seed(0))
    assert ranks(FiniteLanguage(full.log_p[:1].expand(contexts, -1))) == MatrixRanks(1, 1, 0)


@pytest.mark.parametrize(("rank", "unigram"), [(1, False), (7, False), (2, True)])
def test_an_impossible_rank_raises(rank, unigram):
    with pytest.raises(ValueError):
        make_language((6, 8), rank, unigram)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("unigram", [False, True])
def test_a_softmax_is_exact_if_and_only_if_d_is_enough(shape, bias, unigram):
    truth = make_language(shape, 5, unigram)
    enough = ranks(truth).enough(bias)
    assert enough == 4 - (bias and unigram)
    for d in range(1, 8):
        by_svd = kl(truth, softmax_by_svd(truth, d, bias))
        floor = softmax_floor(truth, d, bias)
        assert softmax_by_svd(truth, d, bias).w.shape == (shape[1], d)
        if d >= enough:
            assert abs(by_svd) < 1e-13
            assert floor == 0
        else:
            assert 0 < floor < by_svd


@pytest.mark.parametrize("scale", [0.05, 0.5, 3.0])
def test_fitted_models_respect_the_lower_bound(scale):
    """The bound is tightest for nearly uniform languages, of small scale."""
    generator = torch.Generator().manual_seed(0)
    truth = low_rank_language(4, 5, 4, scale, generator)
    for d in (1, 2):
        fits = [fit_lbfgs(random_model("softmax", truth, 1, d, False, generator), truth, 150) for _ in range(3)]
        assert softmax_floor(truth, d, False) < min(kl(truth, model) for model in fits)


def test_the_lower_bound_is_nearly_tight_if_all_error_is_in_one_context():
    log_p = torch.full((8, 4), 0.25, dtype=torch.float64).log()
    log_p[0] = torch.log_softmax(torch.tensor([1e-3, -1e-3, 0, 0], dtype=torch.float64), dim=0)
    truth = FiniteLanguage(log_p)
    uniform = torch.full_like(log_p, 0.25).log()
    assert 0.9 < softmax_floor(truth, 0, False) / truth.kl(uniform) <= 1


@pytest.mark.parametrize("shape", SHAPES)
def test_a_mos_represents_any_language(shape):
    words = shape[1]
    truth = gaussian_language(*shape, 2.0, torch.Generator().manual_seed(0))  # full rank
    for k in {2, 3, 4, min(7, words), words}:
        d = mos_enough(words, k)
        assert mos_by_groups(truth, k, d - 1) is None
        for size in (d, d + 2):
            model = mos_by_groups(truth, k, size)
            assert (model.h.shape, model.w.shape) == ((shape[0], k, size), (words, size))
            assert (model.log_prob() - truth.log_p).abs().max() < 1e-9


@pytest.mark.parametrize("shape", SHAPES)
def test_a_mos_represents_very_rare_words(shape):
    rare = gaussian_language(*shape, 15.0, torch.Generator().manual_seed(0))
    assert rare.log_p.min() < -40
    assert (mos_by_groups(rare, 3, mos_enough(shape[1], 3)).log_prob() - rare.log_p).abs().max() < 1e-9


def test_the_d_that_is_enough_for_a_mos():
    assert mos_enough(32, 4) == 9
    assert mos_enough(32, 32) == 2
