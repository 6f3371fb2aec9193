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
    """One token at a time, straight from the definition."""
    model.eval()
    state, total = model.initial_state(1), 0.0
    for word, target in pairwise(ids):
        log_p, state = model.log_prob(word.view(1, 1), state)
        total -= log_p[0, 0, target].item()
    return total / (len(ids) - 1)


def test_every_token_but_the_first_once_with_the_state_carried(model, ids):
    result = evaluate(model, ids)
    assert result.tokens == 100
    assert math.isclose(result.nll, by_hand(model, ids), rel_tol=1e-12)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_independent_of_the_window_length(model, ids, batch_size):
    results = [evaluate(model, ids, batch_size, window=w).nll for w in (1, 7, 33, 1000)]
    assert max(results) - min(results) < 1e-12


def test_memory_is_bounded_where_nobody_says_how(model):
    seen = []

    def score(words, targets, state):
        seen.append(words.numel())
        return torch.zeros(words.shape), SimpleNamespace(state=state)

    evaluate(model, torch.zeros(9001, dtype=torch.long), 3, score=score)
    assert max(seen) <= 2000
    assert sum(seen) == 9000


@pytest.mark.parametrize("batch_size", [2, 3, 7, 100, 500])
def test_columns_predict_every_token_once(ids, batch_size):
    words, targets, real = prediction_columns(ids, batch_size)
    assert int(real.sum()) == 100
    assert torch.equal(targets.t()[real.t()], ids[1:])
    assert torch.equal(words.t()[real.t()], ids[:-1])


def test_columns_start_cold(model, ids):
    halves = [by_hand(model, ids[:51]), by_hand(model, ids[50:])]
    assert math.isclose(evaluate(model, ids, 2).nll, sum(halves) / 2, rel_tol=1e-12)
    thirds = [by_hand(model, part) * (len(part) - 1) for part in (ids[:35], ids[34:69], ids[68:])]  # unequal
    assert math.isclose(evaluate(model, ids, 3).nll, sum(thirds) / 100, rel_tol=1e-12)


def test_progress_and_another_way_to_score(model, ids):
    told = []

    def twice(words, targets, state):
        nll, hidden = model(words, targets, state)
        assert not nll.requires_grad  # nothing is kept for a backward pass
        return 2 * nll, hidden

    found = evaluate(model, ids, window=40, score=twice, on_progress=lambda *done: told.append(done))
    assert math.isclose(found.nll, 2 * evaluate(model, ids).nll, rel_tol=1e-12)
    assert told == [(40, 100), (80, 100), (100, 100)]


def test_one_token_is_no_stream(model, ids):
    with pytest.raises(ValueError, match="at least two tokens"):
        evaluate(model, ids[:1])


def test_training_mode_is_restored_and_not_used(model, ids):
    model.train()
    assert evaluate(model, ids).nll == evaluate(model, ids).nll
    assert model.training


def test_perplexity_does_not_overflow():
    assert perplexity(1e6) == math.inf
    assert math.isclose(perplexity(math.log(3)), 3)
