"""Heads fitted to a finite language: the curve, the bound of the rank, the schedule."""

import pytest
import torch

from highrank.analysis.finite_language.fit_head import fit_head
from highrank.data.synthetic import gaussian_language
from highrank.heads import MoCHead, MoSHead, SoftmaxHead

LANGUAGE = gaussian_language(12, 10, 1.5, torch.Generator().manual_seed(0))


def test_the_curve_is_kl_over_steps_and_ends_with_the_result():
    steps = []
    fit = fit_head("a", SoftmaxHead(4, 10), LANGUAGE, steps=50, on_progress=lambda done, total: steps.append(done))
    assert [step for step, _ in fit.curve] == [0, 20, 40, 50]
    assert steps == [0, 20, 40, 50]
    assert fit.curve[-1][1] == fit.kl < fit.curve[0][1]


def test_the_learning_rate_follows_a_cosine_to_zero():
    head = SoftmaxHead(4, 10)
    before = head.weight.detach().clone()
    fit_head("a", head, LANGUAGE, steps=1, lr=0.05)
    assert (head.weight.detach() - before).abs().max().item() == pytest.approx(0.05, rel=1e-3)
    last = [kl for _, kl in fit_head("a", SoftmaxHead(4, 10), LANGUAGE, steps=201, lr=0.5).curve][-2:]
    assert last[0] == pytest.approx(last[1], rel=1e-3)


@pytest.mark.parametrize(
    ("head", "bound"),
    [(SoftmaxHead(3, 10), 5), (MoCHead(6, 3, 10, 4), 5), (MoSHead(6, 3, 10, 4), None), (SoftmaxHead(8, 10), None)],
    ids=["softmax", "moc", "mos", "softmax with D = M - 2"],
)
def test_only_softmax_and_moc_with_a_small_d_are_bounded(head, bound):
    fit = fit_head("a", head, LANGUAGE, steps=30)
    assert fit.rank_bound == bound
    assert fit.rank == (bound or 10)
    assert fit.parameters == 12 * head.in_features + sum(p.numel() for p in head.parameters())
