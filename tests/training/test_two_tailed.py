"""Two-tailed averaging against a slow transcription of the published algorithm that keeps every iterate."""

import itertools
import random

import pytest
import torch
from torch import nn

from highrank.training.two_tailed import TwoTailed

UPDATES = 4  # between evaluations: E


def slow(iterates, loss):
    """Run algorithms 1 and 2 of the paper without resets. Return loss, weights, length, S and L per evaluation."""
    s = length = 0
    results = []
    for t in range(1, len(iterates) + 1):
        s, length = s + 1, length + 1
        if t % UPDATES:
            continue
        average = lambda n, t=t: torch.stack(iterates[t - n : t]).mean(0)  # noqa: E731
        if loss(average(s)) <= loss(average(length)):
            s, length = 0, s
        best, current = average(length), iterates[t - 1]
        if loss(current) <= loss(best):
            results.append((loss(current), current, 1))
            if length == UPDATES:
                s = length = 0
        else:
            results.append((loss(best), best, length))
        results[-1] += (s, length)
    return results


def walk(optimizer, p, evaluations, noise):
    """Descend to the origin with noisy gradients. Return the iterates, the result of every evaluation and the loss."""
    generator = random.Random(2)
    iterates, results = [], []
    evaluate = lambda x: (x**2).sum().item()  # noqa: E731
    for _ in range(evaluations):
        for _ in range(UPDATES):
            p.grad = p.detach() + torch.tensor([generator.gauss(0, noise) for _ in p], dtype=p.dtype)
            optimizer.step(torch.tensor(0.1), torch.tensor(1.0), torch.tensor(True))
            iterates.append(p.detach().clone())
        loss = optimizer.evaluate(lambda: evaluate(p.detach()))
        with optimizer.averaged_weights():
            results.append((loss, p.detach().clone(), optimizer.average_length))
        results[-1] += (int(optimizer.n_short), int(optimizer.n_averaged))
    return iterates, results, evaluate


@pytest.mark.parametrize("noise", [0.5, 3.0])
def test_it_equals_the_published_algorithm(noise):
    p = nn.Parameter(torch.full((5,), 3.0, dtype=torch.float64))
    iterates, results, loss = walk(TwoTailed({"p": p}), p, 30, noise)
    expected = slow(iterates, loss)
    for mine, theirs in zip(results, expected, strict=True):
        assert mine[2:] == theirs[2:]
        assert mine[0] == pytest.approx(theirs[0], rel=1e-9)
        torch.testing.assert_close(mine[1], theirs[1])
    lengths = [length for _, _, length, *_ in results]
    assert lengths[0] == 1  # far from the optimum, the weights themselves are best
    assert any(b < a for a, b in itertools.pairwise(lengths))  # the long average is replaced
    assert max(lengths) > 3 * UPDATES  # and grows again


def test_evaluation_does_not_change_the_weights():
    p = nn.Parameter(torch.full((5,), 3.0, dtype=torch.float64))
    optimizer = TwoTailed({"p": p})
    walk(optimizer, p, 10, 1.0)
    before, long, short = p.detach().clone(), optimizer.averages[0].clone(), optimizer.short[0].clone()
    seen = []

    def loss():
        seen.append(p.detach().clone())
        return [3.0, 1.0, 2.0][len(seen) - 1]

    assert optimizer.evaluate(loss) == 1.0
    assert len(seen) == 3
    assert all(torch.equal(a, b) for a, b in zip(seen, (before, long, short), strict=True))
    assert torch.equal(p, before)
    assert torch.equal(optimizer.averages[0], long)


def test_a_tie_goes_to_the_weights_themselves():
    p = nn.Parameter(torch.full((5,), 3.0, dtype=torch.float64))
    optimizer = TwoTailed({"p": p})
    walk(optimizer, p, 10, 1.0)
    losses = iter([1.0, 1.0, 2.0])
    assert optimizer.evaluate(lambda: next(losses)) == 1.0
    assert (optimizer.uses_averages, optimizer.average_length) == (False, 1)


def test_averages_grow_where_an_epoch_is_one_update(monkeypatch):
    """An average of one iterate is not better than the iterate, and must still be kept."""
    monkeypatch.setitem(globals(), "UPDATES", 1)
    p = nn.Parameter(torch.full((5,), 0.1, dtype=torch.float64))
    _, results, _ = walk(TwoTailed({"p": p}), p, 30, 1.0)
    assert max(length for _, _, length, *_ in results) > 5


def test_an_optimizer_continues_from_the_state_of_another():
    p, q = (nn.Parameter(torch.full((5,), 3.0, dtype=torch.float64)) for _ in range(2))
    optimizer, restored = TwoTailed({"p": p}), TwoTailed({"p": q})
    walk(optimizer, p, 10, 1.0)
    optimizer.long_is_best.fill_(True)
    optimizer.short_is_new.fill_(False)
    q.data.copy_(p.data)
    restored.load_state(optimizer.state())
    assert (restored.uses_averages, restored.short_is_new) == (True, False)
    results = [walk(one, x, 10, 1.0)[1] for one, x in ((optimizer, p), (restored, q))]
    for mine, theirs in zip(*results, strict=True):
        assert torch.equal(mine[1], theirs[1])
        assert mine[2:] == theirs[2:]
    assert all(x.equal(restored.state()[name]) for name, x in optimizer.state().items())


def test_averages_that_a_state_lacks_start_at_the_weights():
    p = nn.Parameter(torch.ones(3))
    optimizer = TwoTailed({"p": p})
    p.data.fill_(2)
    optimizer.load_state({"averages/p": torch.full((3,), 4.0)})
    assert optimizer.averages[0].tolist() == [4] * 3
    assert optimizer.short[0].tolist() == [2] * 3


def test_a_skipped_update_changes_nothing():
    p = nn.Parameter(torch.ones(3))
    optimizer = TwoTailed({"p": p})
    walk(optimizer, p, 3, 0.1)
    before = [x.clone() for x in (p.detach(), *optimizer.state().values())]
    p.grad = torch.full_like(p, torch.nan)
    optimizer.step(torch.tensor(0.1), torch.tensor(1.0), torch.tensor(False))
    assert all(torch.equal(a, b) for a, b in zip(before, (p.detach(), *optimizer.state().values()), strict=True))


def test_a_new_stage_starts_new_averages():
    p = nn.Parameter(torch.ones(3))
    optimizer = TwoTailed({"p": p})
    walk(optimizer, p, 10, 1.0)
    optimizer.start_averaging()
    assert not optimizer.uses_averages
    assert int(optimizer.n_short) == int(optimizer.n_averaged) == 0
    _, results, _ = walk(optimizer, p, 1, 1.0)
    assert results[0][2] in (1, UPDATES)
