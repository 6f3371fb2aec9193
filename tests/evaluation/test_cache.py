"""The continuous cache against a slow transcription of its formulas."""

import math

import pytest
import torch

from highrank.evaluation.cache import cache_evaluate, cache_probabilities, mixed_losses, read_blocks
from highrank.evaluation.perplexity import evaluate
from highrank.models import build_model
from highrank.recipes import ModelSpec
from highrank.recipes.recipe import CacheSettings

V = 12


def make(head):
    torch.manual_seed(2)
    options = {"embed_dim": 6, "hidden_sizes": (8, 6), "n_components": 3, "dropout_output": 0.5}
    return build_model(ModelSpec(head=head, **options), V).double()  # in training mode: dropout must be switched off


def transcription(model, ids, s):
    """Compute the formulas of the module's docstring, one step and one word of the vocabulary at a time."""
    with torch.no_grad():
        hidden = model.eval().backbone(ids[:-1, None], model.initial_state(1))
        p_model = model.head.log_prob(hidden.g)[:, 0].exp()
    h, total = hidden.raw[:, 0], 0.0
    for t in range(len(ids) - 1):
        past = range(max(0, t - s.window), t)
        p = p_model[t]
        if len(past):
            weights = {
                w: sum(math.exp(s.theta * float(h[t] @ h[i])) for i in past if ids[i + 1] == w) for w in range(V)
            }
            cache = torch.tensor([weights[w] / sum(weights.values()) for w in range(V)], dtype=p.dtype)
            p = (1 - s.lamb) * p + s.lamb * cache
        total -= math.log(p[ids[t + 1]])
    return total / (len(ids) - 1)


@pytest.mark.parametrize("head", ["softmax", "moc", "mos"])
@pytest.mark.parametrize("block", [1, 7, 500])
def test_cache_evaluation_equals_its_formulas(head, block):
    ids, settings, progress = torch.randint(V, (40,)), CacheSettings(window=9, theta=2.0, lamb=0.3), []
    result = cache_evaluate(make(head), ids, settings, block=block, on_progress=lambda *done: progress.append(done))
    assert result.tokens == 39
    assert progress == [(min(i + block, 39), 39) for i in range(0, 39, block)]
    assert math.isclose(result.nll, transcription(make(head), ids, settings), rel_tol=1e-9)


def test_several_windows_and_thetas_in_one_pass():
    ids, model, pairs = torch.randint(V, (40,)), make("mos"), [(3, 2.0), (20, 1.0), (20, 2.0), (9, 1.0)]
    with torch.no_grad():
        blocks = list(read_blocks(model.eval(), ids, block=5))
    p_model, p_caches = cache_probabilities(blocks, pairs)
    for (window, theta), p_cache in zip(pairs, p_caches, strict=True):
        alone = cache_evaluate(model, ids, CacheSettings(window, theta, 0.3)).nll
        assert mixed_losses(p_model, p_cache, 0.3).mean().item() == pytest.approx(alone, rel=1e-9)


def test_a_window_longer_than_the_text_remembers_all_of_it():
    ids, model = torch.randint(V, (40,)), make("mos")
    longer, whole = (cache_evaluate(model, ids, CacheSettings(window)) for window in (10**30, 39))
    assert torch.equal(longer.losses, whole.losses)


def test_repeated_text_becomes_more_likely():
    ids, model = torch.tensor([3, 7, 1, 9] * 40), make("mos")
    assert cache_evaluate(model, ids, CacheSettings(theta=50.0, lamb=0.5)).nll < evaluate(model, ids).nll - 0.5
