"""Perplexity against its definition, for any number of columns and any window."""

import math
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch

from highrank.analysis.prediction import predict
from highrank.analysis.reading import hidden_at, read
from highrank.evaluation.cache import cache_evaluate
from highrank.evaluation.generate import generate
from highrank.evaluation.perplexity import evaluate, in_eval_mode, prediction_columns
from highrank.evaluation.score import bits_per_character, format_score, perplexity
from highrank.evaluation.tune import tune_cache
from highrank.models import build_model
from highrank.recipes import ModelSpec
from highrank.recipes.recipe import CacheSettings

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
    words, targets = prediction_columns(ids, batch_size)
    assert torch.equal(targets.t().flatten()[:100], ids[1:])
    assert torch.equal(words.t().flatten()[:100], ids[:-1])


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


def test_perplexity_does_not_overflow():
    assert perplexity(1e6) == math.inf
    assert math.isclose(perplexity(math.log(3)), 3)


FUNCTIONS = {
    "evaluate": evaluate,
    "read": read,
    "cache": lambda model, ids: cache_evaluate(model, ids, CacheSettings(window=2)),
    "tune_cache": lambda model, ids: tune_cache(model, ids, CacheSettings(window=2)),
    "hidden_at": lambda model, ids: list(hidden_at(model, ids, read(model, ids), [1, 4])),
    "generate": lambda model, ids: next(generate(model, ids)),
    "predict": lambda model, ids: predict(model, torch.ones(5).double(), 1, [str(i) for i in range(V)], 5),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_model_runs_in_evaluation_mode_and_its_mode_is_restored(model, function, training):
    model.train(training)
    modes = []
    for module in model.modules():
        module.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    function(model, torch.arange(7))
    assert not any(modes)
    assert all(module.training == training for module in model.modules())


def test_submodules_keep_their_own_modes_even_after_an_exception():
    @in_eval_mode
    def fails(model):
        assert not model.training
        raise RuntimeError

    model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Dropout()).train()
    model[0].eval()
    with pytest.raises(RuntimeError):
        fails(model)
    assert [module.training for module in model.modules()] == [True, False, True]


def test_bits_per_character_of_known_probabilities():
    """Three characters with probabilities 1/2, 1/4 and 1/8 take 1, 2 and 3 bits: 2 on average."""
    nll = -(math.log(1 / 2) + math.log(1 / 4) + math.log(1 / 8)) / 3
    assert bits_per_character(perplexity(nll)) == pytest.approx(2.0)
    assert bits_per_character(perplexity(nll)) == pytest.approx(nll / math.log(2))


def test_scores_are_perplexities_of_words_and_bits_of_characters():
    assert format_score(8.0, "word") == "8.00"
    assert format_score(8.0, "char") == "3.000 bpc"
    assert format_score(8.0, "char", unit=False) == "3.000"
    assert format_score(math.inf, "char", unit=False) == "inf"
