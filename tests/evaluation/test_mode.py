"""Functions that use a model run it in evaluation mode and restore its previous mode."""

import pytest
import torch

from highrank.analysis.prediction import predict
from highrank.analysis.reading import hidden_at, read
from highrank.evaluation.cache import cache_evaluate, read_once
from highrank.evaluation.generate import generate
from highrank.evaluation.mode import in_eval_mode
from highrank.evaluation.perplexity import evaluate
from highrank.models import build_model
from highrank.recipes import ModelSpec
from highrank.recipes.recipe import CacheSettings

IDS = torch.arange(7) % 5


FUNCTIONS = {
    "evaluate": evaluate,
    "read": read,
    "cache": lambda model, ids: cache_evaluate(model, ids, CacheSettings(window=2)),
    "read_once": read_once,
    "hidden_at": lambda model, ids: list(hidden_at(model, ids, read(model, ids), [1, 4])),
    "generate": lambda model, ids: next(generate(model, ids)),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_the_previous_mode_is_restored(function, training):
    model = build_model(ModelSpec(head="softmax", embed_dim=3, hidden_sizes=(3,), dropout_output=0.9), 5).train(
        training
    )
    modes = []
    model.backbone.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    function(model, IDS)
    assert modes
    assert not any(modes)
    assert model.training == model.backbone.training == training


def test_the_caller_may_train_between_two_words():
    model = build_model(
        ModelSpec(head="mos", embed_dim=3, hidden_sizes=(3,), n_components=2, dropout_latent=0.9), 5
    ).train()
    stream = generate(model, IDS, temperature=0)
    for _ in range(3):
        next(stream)
        assert model.training
        assert model.head.latent.training


def test_a_prediction_has_no_dropout():
    model = build_model(
        ModelSpec(head="mos", embed_dim=3, hidden_sizes=(3,), n_components=2, dropout_latent=0.9), 5
    ).train()
    predictions = [predict(model, torch.ones(3), 1, list("abcde"), 5) for _ in range(4)]
    assert all(prediction == predictions[0] for prediction in predictions)
    assert model.training


def test_submodules_keep_their_own_modes():
    model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Dropout()).train()
    model[0].eval()
    in_eval_mode(lambda model: None)(model)
    assert [module.training for module in model.modules()] == [True, False, True]


def test_the_mode_is_restored_after_an_exception():
    @in_eval_mode
    def fails(model, text, *, more=""):
        raise RuntimeError(f"{text}{more} {model.training}")

    model = torch.nn.Linear(1, 1)
    with pytest.raises(RuntimeError, match="a b False"):
        fails(model, "a", more=" b")
    assert model.training
