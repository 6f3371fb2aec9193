import dataclasses

import pytest
import torch

from highrank.analysis.finite_language.models import fit_head, fit_lbfgs, measure, random_model
from highrank.analysis.rank import press_tolerance
from highrank.data.synthetic import gaussian_language, low_rank_language
from highrank.heads import MoCHead, MoSHead, SoftmaxHead

LANGUAGE = low_rank_language(7, 11, 5, 1.5, torch.Generator().manual_seed(0))


def make_model(kind, k=3, d=4, bias=True):
    model = random_model(kind, LANGUAGE, k, d, bias, torch.Generator().manual_seed(0))
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
    wide = model.widen(9, torch.Generator().manual_seed(1))
    assert wide.w.shape == (11, 9)
    torch.testing.assert_close(wide.log_prob(), model.log_prob(), rtol=0, atol=1e-14)
    if kind != "softmax":
        softmax = make_model("softmax")
        torch.testing.assert_close(softmax.as_mixture(kind, 5).log_prob(), softmax.log_prob(), rtol=0, atol=1e-14)


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


def test_unused_parameters_are_not_counted():
    assert sum(x.numel() for x in make_model("softmax").tensors) == 7 * 4 + 11 * 4 + 11
    assert sum(x.numel() for x in make_model("mos", bias=False).tensors) == 7 * 3 * 4 + 7 * 3 + 11 * 4


def test_the_truth_has_kl_0_and_its_own_rank():
    fit = measure(LANGUAGE, LANGUAGE.log_p, name="truth", embed_dim=4, parameters=0, rank_bound=None)
    assert (fit.kl, fit.rank) == (0, 5)


def test_uniform_predictions_have_rank_one():
    uniform = torch.full_like(LANGUAGE.log_p, 1 / 11).log()
    fit = measure(LANGUAGE, uniform, name="uniform", embed_dim=1, parameters=0, rank_bound=None)
    assert (fit.kl, fit.rank) == (pytest.approx(torch.tensor(11.0).log().item() - LANGUAGE.entropy), 1)


@pytest.mark.parametrize(("units", "expected"), [(4, 1), (16, 2)])
def test_a_few_units_of_round_off_do_not_count_as_rank(units, expected):
    noise = torch.zeros_like(LANGUAGE.log_p)
    noise[0, 0] = units * press_tolerance(1.0, *noise.shape)
    noise[1, 1] = 1.0
    assert measure(LANGUAGE, noise, name="noise", embed_dim=1, parameters=0, rank_bound=None).rank == expected


# --- heads ----------------------------------------------------------------------------------------------------------

FULL_RANK = gaussian_language(12, 10, 1.5, torch.Generator().manual_seed(0))


def test_the_curve_is_kl_over_steps_and_ends_with_the_result():
    steps = []
    fit = fit_head("a", SoftmaxHead(4, 10), FULL_RANK, steps=50, on_progress=lambda done, total: steps.append(done))
    assert [step for step, _ in fit.curve] == [0, 20, 40, 50]
    assert steps == [0, 20, 40, 50]
    assert fit.curve[-1][1] == fit.kl < fit.curve[0][1]


def test_the_learning_rate_follows_a_cosine_to_zero():
    head = SoftmaxHead(4, 10)
    before = head.weight.detach().clone()
    fit_head("a", head, FULL_RANK, steps=1, lr=0.05)
    assert (head.weight.detach() - before).abs().max().item() == pytest.approx(0.05, rel=1e-3)
    last = [kl for _, kl in fit_head("a", SoftmaxHead(4, 10), FULL_RANK, steps=201, lr=0.5).curve][-2:]
    assert last[0] == pytest.approx(last[1], rel=1e-3)


@pytest.mark.parametrize(
    ("head", "bound"),
    [(SoftmaxHead(3, 10), 5), (MoCHead(6, 3, 10, 4), 5), (MoSHead(6, 3, 10, 4), None), (SoftmaxHead(8, 10), None)],
    ids=["softmax", "moc", "mos", "softmax with D = M - 2"],
)
def test_only_softmax_and_moc_with_a_small_d_are_bounded(head, bound):
    fit = fit_head("a", head, FULL_RANK, steps=30)
    assert fit.rank_bound == bound
    assert fit.rank == (bound or 10)
    assert fit.parameters == 12 * head.in_features + sum(p.numel() for p in head.parameters())
