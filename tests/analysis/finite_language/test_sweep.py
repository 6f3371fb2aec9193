import itertools

import pytest
import torch

from highrank.analysis.finite_language import Setup
from highrank.analysis.finite_language.bounds import ranks, softmax_by_svd
from highrank.analysis.finite_language.sweep import _jitter, sweep

SETUP = Setup(contexts=12, words=10, rank=6, dims=(4, 1, 2, 5), components=3, quick=True)
LANGUAGE = SETUP.language()


@pytest.fixture(scope="module")
def points():
    return sweep(LANGUAGE, SETUP)


def test_a_sweep_goes_through_d_in_order_and_kl_decreases(points):
    assert [p.found.embed_dim for p in points[::3]] == [1, 2, 4, 5]
    for head in range(3):
        kls = [p.found.kl for p in points[head::3]]
        assert all(after <= before for before, after in itertools.pairwise(kls))


def test_a_sweep_respects_theory(points):
    for softmax, moc, mos in zip(*(points[head::3] for head in range(3)), strict=True):
        d = softmax.found.embed_dim
        assert mos.found.kl <= softmax.found.kl + 1e-15
        assert softmax.lower_bound <= softmax.found.kl
        assert max(softmax.found.rank, moc.found.rank) <= d + 1
        assert moc.collapse_error < 1e-12
        assert (softmax.constructed is not None) == (d >= ranks(LANGUAGE).lowest == 5)
    assert points[2].found.rank > 2  # MoS at D = 1


def test_a_sweep_depends_on_its_seed_only(points):
    again = sweep(LANGUAGE, SETUP)
    assert [p.found.kl for p in again] == [p.found.kl for p in points]


def test_jitter_tells_equal_components_apart():
    generator = torch.Generator().manual_seed(0)
    softmax = softmax_by_svd(LANGUAGE, 2, bias=False)
    assert _jitter(softmax, generator) is softmax
    h = _jitter(softmax.as_mixture("mos", 3), generator).h
    assert 0 < (h - softmax.h).abs().max() < 0.1
    assert not torch.equal(h[:, 0], h[:, 1])
