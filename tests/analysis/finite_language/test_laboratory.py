"""The laboratory's models are the toolkit's heads, and its optimiser only ever improves on its starts."""

import dataclasses
import itertools

import pytest
import torch

from highrank.analysis.finite_language.bounds import ranks
from highrank.analysis.finite_language.laboratory import fit_adam, fit_lbfgs, measure, random_model, rank
from highrank.analysis.finite_language.sweep import Effort, _jittered, sweep
from highrank.analysis.rank import press_tolerance
from highrank.data.synthetic import low_rank_language
from highrank.heads import MoCHead, MoSHead, SoftmaxHead


def random(kind, k=3, d=4, bias=True):
    model = random_model(kind, (7, 11), k, d, bias, torch.Generator().manual_seed(0))
    if bias:
        model.b.normal_()
    return model


@pytest.mark.parametrize("bias", [False, True])
def test_models_are_the_heads(bias):
    softmax = SoftmaxHead(4, 11, bias=bias).double()
    for kind, head in (
        ("softmax", softmax),
        *((k, c(5, 4, 11, 3, bias=bias).double()) for k, c in (("moc", MoCHead), ("mos", MoSHead))),
    ):
        model = random(kind, bias=bias)
        head.weight.data, g = model.w, model.h[:, 0]
        if bias:
            head.bias.data = model.b
        if kind != "softmax":
            head.log_components = lambda g, m=model: (torch.log_softmax(m.prior, dim=-1), m.h)
        torch.testing.assert_close(model.log_prob(), head.log_prob(g).detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["softmax", "moc", "mos"])
def test_widening_and_mixing_keep_the_distribution(kind):
    model = random(kind)
    wide = model.widened(9, torch.Generator().manual_seed(1))
    assert wide.w.shape == (11, 9)
    torch.testing.assert_close(wide.log_prob(), model.log_prob(), rtol=0, atol=1e-14)
    if kind != "softmax":
        softmax = random("softmax")
        torch.testing.assert_close(softmax.mixed(kind, 5).log_prob(), softmax.log_prob(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("kind", ["softmax", "moc", "mos"])
def test_lbfgs_improves_and_keeps_to_its_budget(kind):
    language = low_rank_language(7, 11, 5, 1.5, torch.Generator().manual_seed(0))
    start, calls = random(kind), []
    before = start.h.clone()
    better = fit_lbfgs(start, language, 60, lambda: calls.append(1))
    assert language.kl(better.log_prob()) < 0.5 * language.kl(start.log_prob())
    assert len(calls) <= 60 + 25  # a line search begun is finished
    assert torch.equal(start.h, before)
    assert not better.h.requires_grad


def test_what_lbfgs_finds_is_a_minimum_of_kl_itself():
    """And not of the reverse KL, which has another one where D is too small to be exact."""
    language = low_rank_language(7, 11, 5, 1.5, torch.Generator().manual_seed(0))
    found = fit_lbfgs(random("softmax", d=2), language, 400)
    w = found.w.clone().requires_grad_()
    p = language.log_p.exp()
    (gradient,) = torch.autograd.grad(-(p * dataclasses.replace(found, w=w).log_prob()).sum(dim=1).mean(), w)
    assert language.kl(found.log_prob()) > 1e-3
    assert gradient.abs().max() < 1e-4


def test_adam_slows_down_and_tells_kl():
    language = low_rank_language(7, 11, 5, 1.5, torch.Generator().manual_seed(0))
    model, seen, told = random("softmax", d=2), [], []
    before = language.kl(model.log_prob())
    model.w.requires_grad_()

    def log_prob():
        seen.append(model.w.detach().clone())
        return model.log_prob()

    curve = fit_adam(log_prob, [model.w], language, 50, 0.05, told.append)
    assert [step for step, _ in curve] == [0, 20, 40]
    assert told == [0, 20, 40, 50]
    assert curve[0][1] == pytest.approx(before)
    assert curve[-1][1] < curve[0][1]
    moves = [(b - a).abs().max().item() for a, b in itertools.pairwise(seen)]
    assert moves[0] == pytest.approx(0.05, rel=1e-3)
    assert moves[-1] < 0.002  # a cosine's end


def test_only_mixtures_are_jittered():
    """Equal components would stay equal; a softmax has one."""
    generator = torch.Generator().manual_seed(0)
    softmax = random("softmax")
    assert _jittered(softmax, generator) is softmax
    h = _jittered(softmax.mixed("mos", 3), generator).h
    assert 0 < (h - softmax.h).abs().max() < 0.1
    assert not torch.equal(h[:, 0], h[:, 1])


def test_parameters_are_counted_where_they_matter():
    assert sum(x.numel() for x in random("softmax").tensors) == 7 * 4 + 11 * 4 + 11
    assert sum(x.numel() for x in random("mos", bias=False).tensors) == 7 * 3 * 4 + 7 * 3 + 11 * 4


def test_measure():
    language = low_rank_language(7, 11, 5, 1.5, torch.Generator().manual_seed(0))
    fit = measure(language, language.log_p, name="truth", embed_dim=4, parameters=0, rank_bound=None)
    assert (fit.kl, fit.rank) == (0, 5)
    assert fit.perplexity == pytest.approx(torch.tensor(language.entropy).exp().item())
    uniform = torch.full_like(language.log_p, 1 / 11).log()
    fit = measure(language, uniform, name="uniform", embed_dim=1, parameters=0, rank_bound=None)
    assert fit.perplexity == pytest.approx(11)
    assert (fit.kl, fit.rank) == (pytest.approx(torch.tensor(11.0).log().item() - language.entropy), 1)


def test_a_few_units_of_round_off_are_no_rank():
    unit = press_tolerance(1.0, 7, 11)
    for units, found in ((4, 1), (16, 2)):
        assert rank(torch.tensor([1.0, units * unit], dtype=torch.float64), (7, 11)) == found


def test_a_sweep_goes_down_and_respects_theory():
    language = low_rank_language(12, 10, 6, 1.5, torch.Generator().manual_seed(0))
    shares = []
    effort = Effort(1, {"softmax": 80, "moc": 80, "mos": 80})
    points = sweep(language, [4, 1, 2, 5, 2], 3, False, 1, effort, lambda d, kind, share: shares.append(share))
    assert [p.fit.embed_dim for p in points[::3]] == [1, 2, 4, 5]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    for kind in range(3):
        kls = [p.fit.kl for p in points[kind::3]]
        assert all(after <= before for before, after in itertools.pairwise(kls))
    for softmax, moc, mos in zip(*(points[kind::3] for kind in range(3)), strict=True):
        d = softmax.fit.embed_dim
        assert mos.fit.kl <= softmax.fit.kl + 1e-15
        assert softmax.floor <= softmax.fit.kl
        assert max(softmax.fit.rank, moc.fit.rank) <= d + 1
        assert (softmax.constructed is not None) == (d >= ranks(language).lowest == 5)
    assert points[2].fit.rank > 2  # MoS at D = 1
    again = sweep(language, [1, 2, 4, 5], 3, False, 1, effort, lambda *_: None)
    assert [p.fit.kl for p in again] == [p.fit.kl for p in points]
