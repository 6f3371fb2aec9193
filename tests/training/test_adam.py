"""Adam as a transformation of gradients."""

import pytest
import torch
from torch import nn

from highrank.training.nt_asgd import NTASGD
from highrank.training.two_tailed import TwoTailed


def step(optimizer, lr=0.1, scale=1.0, apply=True):
    optimizer.step(torch.tensor(lr), torch.tensor(scale), torch.tensor(apply))


@pytest.mark.parametrize("averaging", [NTASGD, TwoTailed])
def test_updates_equal_torchs_adam(averaging):
    p = nn.Parameter(torch.randn(5, 3))
    q = nn.Parameter(p.detach().clone())
    optimizer = averaging({"p": p}, adam=True)
    expected = torch.optim.Adam([q], lr=0.1)
    for _ in range(6):
        gradient = torch.randn_like(p)
        p.grad = 8 * gradient
        q.grad = gradient
        step(optimizer, scale=1 / 8)
        expected.step()
    torch.testing.assert_close(p, q)


def test_weight_decay_is_decoupled():
    p = nn.Parameter(torch.ones(2))
    q = nn.Parameter(torch.ones(2))
    optimizer = NTASGD({"p": p}, weight_decay=0.5, adam=True)
    expected = torch.optim.AdamW([q], lr=0.1, weight_decay=0.5)
    for _ in range(3):
        p.grad = torch.tensor([1.0, -2.0])
        q.grad = p.grad.clone()
        step(optimizer)
        expected.step()
    torch.testing.assert_close(p, q)


def test_a_skipped_update_changes_nothing():
    p = nn.Parameter(torch.randn(4))
    optimizer = NTASGD({"p": p}, adam=True)
    p.grad = torch.randn(4)
    step(optimizer)
    before = [x.detach().clone() for x in (p, *optimizer.state().values())]
    p.grad = torch.full((4,), torch.nan)
    step(optimizer, apply=False)
    assert all(torch.equal(a, b) for a, b in zip(before, (p, *optimizer.state().values()), strict=True))
