"""What looks at a model leaves its mode as it was."""

import pytest
import torch

from highrank.analysis.prediction import predict
from highrank.analysis.reading import hidden_at, read
from highrank.evaluation.cache import cache_evaluate, read_once
from highrank.evaluation.generation import generate
from highrank.evaluation.mode import in_eval_mode
from highrank.evaluation.perplexity import evaluate
from highrank.models import build_model
from highrank.recipes import ModelSpec
from highrank.recipes.recipe import CacheSettings

IDS = torch.arange(7) % 5


LOOKS = {
    "evaluate": evaluate,
    "read": read,
    "cache": lambda model, ids: cache_evaluate(model, ids, CacheSettings(window=2)),
    "read_once": read_once,
    "hidden_at": lambda model, ids: list(hidden_at(model, ids, read(model, ids), [1, 4])),
    "generate": lambda model, ids: next(generate(model, ids)),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_the_mode_is_kept(look, training):
    model = build_model(ModelSpec(head="softmax", embed_dim=3, hidden_sizes=(3,), dropout_output=0.9), 5).train(
        training
    )
    modes = []
    model.backbone.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    look(model, IDS)
    assert modes
    assert not any(modes)
    assert model.training == model.backbone.training == training


def test_whoever_samples_may_train_between_two_words():
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
    said = [predict(model, torch.ones(3), 1, list("abcde"), 5) for _ in range(4)]
    assert all(one == said[0] for one in said)
    assert model.training


def test_parts_keep_modes_of_their_own():
    model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Dropout()).train()
    model[0].eval()
    in_eval_mode(lambda model: None)(model)
    assert [module.training for module in model.modules()] == [True, False, True]


def test_and_kept_when_it_fails():
    @in_eval_mode
    def fails(model, text, *, more=""):
        raise RuntimeError(f"{text}{more} {model.training}")

    model = torch.nn.Linear(1, 1)
    with pytest.raises(RuntimeError, match="no no False"):
        fails(model, "no", more=" no")
    assert model.training
