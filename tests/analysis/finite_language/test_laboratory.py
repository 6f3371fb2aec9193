import dataclasses
import itertools

import pytest
import torch

from highrank.analysis.finite_language.bounds import ranks
from highrank.analysis.finite_language.laboratory import fit_lbfgs, measure, random_model, rank
from highrank.analysis.finite_language.sweep import Effort, _jitter, sweep
from highrank.analysis.rank import press_tolerance
from highrank.data.synthetic import low_rank_language
from highrank.heads import MoCHead, MoSHead, SoftmaxHead

LANGUAGE = low_rank_language(7, 11, 5, 1.5, torch.Generator().manual_seed(0))


def make_model(kind, k=3, d=4, bias=True):
    model = random_model(kind, (7, 11), k, d, bias, torch.Generator().manual_seed(0))
    if bias:
        model.b.normal_()
    return model


@pytest.mark.parametrize("bias", [False, True])
def test_models_agree_with_the_heads(bias):
    softmax = SoftmaxHead(4, 11, bias=bias).double()
    for kind, head in (
        ("softmax", softmax),
        *((k, c(5, 4, 11, 3, bias=bias).double()) for k, c in (("moc", MoCHead), ("mos", MoSHead))),
    ):
        model = make_model(kind, bias=bias)
        head.weight.data, g = model.w, model.h[:, 0]
        if bias:
            head.bias.data = model.b
        if kind != "softmax":
            head.log_components = lambda g, m=model: (torch.log_softmax(m.prior, dim=-1), m.h)
        torch.testing.assert_close(model.log_prob(), head.log_prob(g).detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["softmax", "moc", "mos"])
def test_widening_and_mixing_preserve_the_distribution(kind):
    model = make_model(kind)
    wide = model.widened(9, torch.Generator().manual_seed(1))
    assert wide.w.shape == (11, 9)
    torch.testing.assert_close(wide.log_prob(), model.log_prob(), rtol=0, atol=1e-14)
    if kind != "softmax":
        softmax = make_model("softmax")
        torch.testing.assert_close(softmax.mixed(kind, 5).log_prob(), softmax.log_prob(), rtol=0, atol=1e-14)


def test_a_moc_mixes_logits():
    moc = make_model("moc")
    torch.testing.assert_close(moc.log_prob(), moc.moc_log_prob(), rtol=0, atol=1e-13)
    mos = dataclasses.replace(moc, kind="mos")
    assert (mos.log_prob() - moc.moc_log_prob()).abs().max() > 1e-3


@pytest.mark.parametrize("kind", ["softmax", "moc", "mos"])
def test_lbfgs_improves_on_its_start_and_leaves_it_unchanged(kind):
    start = make_model(kind)
    before = start.h.clone()
    better = fit_lbfgs(start, LANGUAGE, 60)
    assert LANGUAGE.kl(better.log_prob()) < 0.5 * LANGUAGE.kl(start.log_prob())
    assert torch.equal(start.h, before)
    assert not better.h.requires_grad


def test_lbfgs_minimises_kl_and_not_the_reverse_kl():
    fit = fit_lbfgs(make_model("softmax", d=2), LANGUAGE, 400)
    w = fit.w.clone().requires_grad_()
    p = LANGUAGE.log_p.exp()
    (gradient,) = torch.autograd.grad(-(p * dataclasses.replace(fit, w=w).log_prob()).sum(dim=1).mean(), w)
    assert LANGUAGE.kl(fit.log_prob()) > 1e-3
    assert gradient.abs().max() < 1e-4


def test_only_mixtures_are_jitter():
    """Equal components would stay equal; a softmax has one."""
    generator = torch.Generator().manual_seed(0)
    softmax = make_model("softmax")
    assert _jitter(softmax, generator) is softmax
    h = _jitter(softmax.mixed("mos", 3), generator).h
    assert 0 < (h - softmax.h).abs().max() < 0.1
    assert not torch.equal(h[:, 0], h[:, 1])


def test_unused_parameters_are_not_counted():
    assert sum(x.numel() for x in make_model("softmax").tensors) == 7 * 4 + 11 * 4 + 11
    assert sum(x.numel() for x in make_model("mos", bias=False).tensors) == 7 * 3 * 4 + 7 * 3 + 11 * 4


def test_the_truth_has_kl_0_and_its_own_rank():
    fit = measure(LANGUAGE, LANGUAGE.log_p, name="truth", embed_dim=4, parameters=0, rank_bound=None)
    assert (fit.kl, fit.rank) == (0, 5)
    assert fit.perplexity == pytest.approx(torch.tensor(LANGUAGE.entropy).exp().item())


def test_uniform_predictions_have_the_perplexity_of_the_vocabulary():
    uniform = torch.full_like(LANGUAGE.log_p, 1 / 11).log()
    fit = measure(LANGUAGE, uniform, name="uniform", embed_dim=1, parameters=0, rank_bound=None)
    assert fit.perplexity == pytest.approx(11)
    assert (fit.kl, fit.rank) == (pytest.approx(torch.tensor(11.0).log().item() - LANGUAGE.entropy), 1)


@pytest.mark.parametrize(("units", "expected"), [(4, 1), (16, 2)])
def test_a_few_units_of_round_off_do_not_count_as_rank(units, expected):
    unit = press_tolerance(1.0, 7, 11)
    assert rank(torch.tensor([1.0, units * unit], dtype=torch.float64), (7, 11)) == expected


@pytest.fixture(scope="module")
def points():
    return sweep(SWEPT, [4, 1, 2, 5], 3, False, 1, EFFORT)


SWEPT = low_rank_language(12, 10, 6, 1.5, torch.Generator().manual_seed(0))
EFFORT = Effort(1, {"softmax": 80, "moc": 80, "mos": 80})


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
        assert (softmax.constructed is not None) == (d >= ranks(SWEPT).lowest == 5)
    assert points[2].found.rank > 2  # MoS at D = 1


def test_a_sweep_depends_on_its_seed_only(points):
    again = sweep(SWEPT, [1, 2, 4, 5], 3, False, 1, EFFORT)
    assert [p.found.kl for p in again] == [p.found.kl for p in points]
