"""Dynamic evaluation against a slow transcription of its formulas."""

import dataclasses
import math

import pytest
import torch

from highrank.evaluation.dynamic import dynamic_evaluate, gradient_statistics
from highrank.evaluation.perplexity import evaluate
from highrank.models import build_model
from highrank.recipes import ModelSpec
from highrank.recipes.recipe import DynamicSettings

V = 20
SETTINGS = DynamicSettings(lr=0.05, lamb=0.3, epsilon=0.01, segment=5, stats_batch_size=4)


def make(head, device="cpu"):
    torch.manual_seed(2)
    options = {"embed_dim": 6, "hidden_sizes": (8, 6), "n_components": 3, "dropout_output": 0.5, "weight_drop": 0.5}
    return build_model(ModelSpec(head=head, **options), V).double().to(device)


def transcription(model, train, ids, s):
    """Compute the formulas of the module's docstring, one parameter tensor at a time."""
    params = dict(model.named_parameters())

    def gradient(x, y, state):
        model.zero_grad()
        nll, hidden = model.eval()(x, y, [(h.detach(), c.detach()) for h, c in state])
        nll.mean().backward()
        return nll.detach(), hidden.state

    length = len(train) // s.stats_batch_size
    stream = train[: length * s.stats_batch_size].view(s.stats_batch_size, length).t()
    squares = {n: torch.zeros_like(p) for n, p in params.items()}
    state = model.initial_state(s.stats_batch_size)
    for i in range(0, length - 1, s.segment):
        j = min(i + s.segment, length - 1)
        _, state = gradient(stream[i:j], stream[i + 1 : j + 1], state)
        for n, p in params.items():
            squares[n] = squares[n] + p.grad**2
    r = {n: x.sqrt() for n, x in squares.items()}
    scale = sum(x.mean() for x in r.values())
    theta0 = {n: p.detach().clone() for n, p in params.items()}
    total, state = 0.0, model.initial_state(1)
    for i in range(0, len(ids) - 1, s.segment):
        j = min(i + s.segment, len(ids) - 1)
        nll, state = gradient(ids[i:j, None], ids[i + 1 : j + 1, None], state)
        total += nll.sum().item()
        for n, p in params.items():
            decay = torch.minimum(r[n] / scale, torch.tensor(1 / s.lamb))
            update = s.lamb * decay * (theta0[n] - p.detach()) - s.lr * p.grad / (r[n] + s.epsilon)
            p.data = p.data + update
    return total / (len(ids) - 1)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(("head", "lamb"), [("softmax", 0.3), ("moc", 0.3), ("mos", 0.3), ("mos", 4.0)])
def test_dynamic_evaluation_equals_its_formulas(head, lamb, device):
    train, ids = torch.randint(V, (203,)).to(device), torch.randint(V, (58,)).to(device)
    model, settings = make(head, device), dataclasses.replace(SETTINGS, lamb=lamb)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    statistics = gradient_statistics(model, train, settings)
    share = torch.cat([r.flatten() for r in statistics]) / sum(r.mean() for r in statistics)
    assert (lamb > 1) == bool((share > 1 / lamb).any())  # only a large lambda reaches the clipping
    result = dynamic_evaluate(model, ids, statistics, settings)
    assert all(torch.equal(p, before[n]) for n, p in model.named_parameters())  # the model itself is unchanged
    assert result.tokens == 57
    expected = transcription(make(head, device), train, ids, settings)
    assert math.isclose(result.nll, expected, rel_tol=1e-10)


def test_a_tiny_lambda_does_not_overflow():
    train, ids = torch.randint(V, (203,)), torch.randint(V, (58,))
    model = make("mos").float()
    statistics = gradient_statistics(model, train, SETTINGS)
    tiny, small = (
        dynamic_evaluate(model, ids, statistics, dataclasses.replace(SETTINGS, lamb=x)) for x in (1e-42, 1e-20)
    )
    assert torch.equal(tiny.losses, small.losses)


def test_only_the_statistics_use_tf32():
    matmul, seen = torch.backends.cuda.matmul, []
    before = matmul.fp32_precision

    def observe(*_):
        seen.append(matmul.fp32_precision)

    model, train, ids = make("mos"), torch.randint(V, (203,)), torch.randint(V, (58,))
    statistics = gradient_statistics(model, train, SETTINGS, observe)
    assert set(seen) == {"tf32"}
    assert matmul.fp32_precision == before != "tf32"
    seen.clear()
    dynamic_evaluate(model, ids, statistics, SETTINGS, observe)
    assert set(seen) == {before}
    with pytest.raises(ZeroDivisionError):
        gradient_statistics(model, train, SETTINGS, lambda done, total: 1 // 0)
    assert matmul.fp32_precision == before


@pytest.mark.gpu
@pytest.mark.parametrize("head", ["softmax", "moc", "mos"])
def test_statistics_on_a_gpu_are_accurate_to_a_thousandth(head):
    train = torch.randint(V, (2003,))
    exact = gradient_statistics(make(head), train, SETTINGS)
    for r, wanted in zip(gradient_statistics(make(head).float().cuda(), train, SETTINGS), exact, strict=True):
        assert (r.cpu().double() - wanted).norm() < 2e-3 * wanted.norm()


def test_statistics_of_a_text_shorter_than_the_batch():
    statistics = gradient_statistics(make("mos"), torch.randint(V, (7,)), SETTINGS)  # room for three columns only
    assert sum(r.sum() for r in statistics) > 0


def test_a_zero_learning_rate_is_plain_evaluation():
    ids = torch.randint(V, (58,))
    model = make("mos")
    still = DynamicSettings(lr=0.0, lamb=0.3, epsilon=0.01, stats_batch_size=4)
    statistics = gradient_statistics(model, torch.randint(V, (203,)), still)
    assert math.isclose(dynamic_evaluate(model, ids, statistics, still).nll, evaluate(model, ids).nll, rel_tol=1e-12)


def test_repeated_text_becomes_more_likely():
    ids = torch.tensor([3, 7, 1, 9] * 60)
    model = make("mos")
    statistics = gradient_statistics(model, torch.randint(V, (203,)), SETTINGS)
    assert dynamic_evaluate(model, ids, statistics, SETTINGS).nll < evaluate(model, ids).nll - 0.5
