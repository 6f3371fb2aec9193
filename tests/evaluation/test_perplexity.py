"""Perplexity against its definition, for any number of columns and any window."""

import math
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch

from highrank.evaluation.perplexity import evaluate, perplexity, prediction_columns
from highrank.models import build_model
from highrank.recipes import ModelSpec

V = 20


@pytest.fixture
def model():
    return build_model(
        ModelSpec(head="mos", embed_dim=6, hidden_sizes=(8, 5), n_components=3, dropout_output=0.5), V
    ).double()


@pytest.fixture
def ids():
    return torch.randint(V, (101,))


def by_hand(model, ids):
    """Compute the mean loss one token at a time."""
    model.eval()
    state, total = model.initial_state(1), 0.0
    for word, target in pairwise(ids):
        log_p, state = model.log_prob(word.view(1, 1), state)
        total -= log_p[0, 0, target].item()
    return total / (len(ids) - 1)


def test_every_token_except_the_first_is_predicted_once(model, ids):
    result = evaluate(model, ids)
    assert result.tokens == 100
    assert math.isclose(result.nll, by_hand(model, ids), rel_tol=1e-12)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_the_result_does_not_depend_on_the_window(model, ids, batch_size):
    results = [evaluate(model, ids, batch_size, window=w).nll for w in (1, 7, 33, 1000)]
    assert max(results) - min(results) < 1e-12


def test_the_default_window_bounds_memory(model):
    seen = []

    def score(words, targets, state):
        seen.append(words.numel())
        return torch.zeros(words.shape), SimpleNamespace(state=state)

    evaluate(model, torch.zeros(9001, dtype=torch.long), 3, score=score)
    assert max(seen) <= 2000
    assert sum(seen) == 9000


@pytest.mark.parametrize("batch_size", [2, 3, 7, 100, 500])
def test_columns_cover_every_token_once(ids, batch_size):
    words, targets, real = prediction_columns(ids, batch_size)
    assert int(real.sum()) == 100
    assert torch.equal(targets.t()[real.t()], ids[1:])
    assert torch.equal(words.t()[real.t()], ids[:-1])


def test_columns_start_from_a_zero_state(model, ids):
    halves = [by_hand(model, ids[:51]), by_hand(model, ids[50:])]
    assert math.isclose(evaluate(model, ids, 2).nll, sum(halves) / 2, rel_tol=1e-12)
    thirds = [by_hand(model, part) * (len(part) - 1) for part in (ids[:35], ids[34:69], ids[68:])]  # unequal
    assert math.isclose(evaluate(model, ids, 3).nll, sum(thirds) / 100, rel_tol=1e-12)


def test_a_replaced_forward_pass_and_progress(model, ids):
    progress = []

    def twice(words, targets, state):
        nll, hidden = model(words, targets, state)
        assert not nll.requires_grad  # no graph for a backward pass
        return 2 * nll, hidden

    result = evaluate(model, ids, window=40, score=twice, on_progress=lambda *done: progress.append(done))
    assert math.isclose(result.nll, 2 * evaluate(model, ids).nll, rel_tol=1e-12)
    assert progress == [(40, 100), (80, 100), (100, 100)]


def test_a_single_token_is_an_error(model, ids):
    with pytest.raises(ValueError, match="two tokens"):
        evaluate(model, ids[:1])


def test_training_mode_is_restored_and_has_no_effect(model, ids):
    model.train()
    assert evaluate(model, ids).nll == evaluate(model, ids).nll
    assert model.training


def test_perplexity_does_not_overflow():
    assert perplexity(1e6) == math.inf
    assert math.isclose(perplexity(math.log(3)), 3)
