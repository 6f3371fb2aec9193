"""NT-ASGD: the update, the average and the non-monotone rule."""

import pytest
import torch
from torch import nn

from highrank.training.nt_asgd import NTASGD, is_worse


def make(weight_decay=0.0):
    torch.manual_seed(3)
    p = nn.Parameter(torch.randn(4, dtype=torch.float64))
    return p, NTASGD({"p": p}, weight_decay)


def step(optimizer, lr, scale=1.0, apply=True):
    optimizer.step(torch.tensor(lr), torch.tensor(scale), torch.tensor(apply))


def test_a_skipped_update_changes_nothing():
    p, optimizer = make(weight_decay=0.1)
    optimizer.start_averaging()
    p.grad = torch.ones_like(p)
    step(optimizer, 0.5)
    before, average = p.detach().clone(), optimizer.averages[0].clone()
    p.grad = torch.full_like(p, torch.nan)
    step(optimizer, 0.5, apply=False)
    assert torch.equal(p, before)
    assert torch.equal(optimizer.averages[0], average)
    assert optimizer.n_averaged == 1


def test_plain_sgd_equals_torch():
    p, optimizer = make(weight_decay=0.1)
    q = nn.Parameter(p.detach().clone())
    torch_sgd = torch.optim.SGD([q], lr=0.5, weight_decay=0.1)
    for i in range(5):
        p.grad = torch.full_like(p, i - 2.0)
        q.grad = p.grad / 4
        step(optimizer, 0.5, scale=0.25)  # scales the gradient, not the weight decay
        torch_sgd.step()
    torch.testing.assert_close(p, q)


def test_the_average_is_the_mean_of_all_iterates_since_the_start():
    p, optimizer = make()
    for i in range(8):
        if i == 2:
            optimizer.start_averaging()
            iterates = []
        p.grad = torch.full_like(p, i - 2.5)
        step(optimizer, 0.5)
        if i >= 2:
            iterates.append(p.detach().clone())
    torch.testing.assert_close(optimizer.averages[0], torch.stack(iterates).mean(0))


def test_the_average_starts_at_the_weights():
    p, optimizer = make()
    start = p.detach().clone()
    optimizer.start_averaging()
    p.grad = torch.full_like(p, torch.nan)
    step(optimizer, 0.5, apply=False)
    assert optimizer.evaluate(lambda: p.detach().clone()).equal(start)


def test_every_window_uses_its_own_learning_rate():
    """torch's ASGD would use that of the previous window."""
    p, optimizer = make()
    start = p.detach().clone()
    optimizer.start_averaging()
    for lr in (1.0, 0.1):
        p.grad = torch.ones_like(p)
        step(optimizer, lr)
    torch.testing.assert_close(p.detach(), start - 1.1)


def test_averaged_weights_are_swapped_in_and_out():
    p, optimizer = make()
    optimizer.start_averaging()
    for i in range(3):
        p.grad = torch.full_like(p, float(i))
        step(optimizer, 1.0)
    current, average = p.detach().clone(), optimizer.averages[0].clone()

    def use():
        with optimizer.averaged_weights():
            assert torch.equal(p, average)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        use()  # an exception restores the weights too
    assert torch.equal(p, current)
    assert torch.equal(optimizer.averages[0], average)


def test_the_non_monotone_rule():
    history = [5.0, 4.0, 3.0, 3.5, 3.4]
    assert not is_worse(9.0, history[:2], 2)  # too early
    assert is_worse(4.5, history[:3], 1)  # above the best of all but the last, 4.0
    assert not is_worse(3.9, history[:3], 1)  # below it, though above the very best
    assert not is_worse(4.0, history[:3], 1)  # equal is not worse
    assert is_worse(3.1, history, 2)
    assert not is_worse(2.9, history, 2)
