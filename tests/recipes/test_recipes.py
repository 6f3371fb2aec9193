import dataclasses
import json

import numpy as np
import pytest
import torch

from highrank.errors import UserError
from highrank.recipes import RECIPES, get_recipe, override, overrides
from highrank.recipes.recipe import check, from_resolved
from highrank.runs.folder import Run
from highrank.training.stages import Training


def shrink(recipe):
    """A recipe at toy size: its structure, dropouts and schedule, with small layers and short windows."""
    sizes = tuple(max(4, h // 80) for h in recipe.model.hidden_sizes)
    embed = sizes[-1] if recipe.model.head == "softmax" else 4
    model = dataclasses.replace(recipe.model, embed_dim=embed, hidden_sizes=sizes)
    train = dataclasses.replace(recipe.train, batch_size=min(recipe.train.batch_size, 15), bptt=8, max_over_bptt=3)
    return dataclasses.replace(recipe, model=model, train=train)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_takes_two_steps(name, toy_corpus, tmp_path):
    recipe = shrink(get_recipe(name))
    check(recipe)
    training = Training(recipe, toy_corpus, Run(tmp_path / "run"), torch.device("cpu"))
    before = [p.detach().clone() for p in training.model.parameters()]
    for _, window in zip(range(2), training.windows(), strict=False):
        training.train_window(window)
        assert np.isfinite(training.read_totals())
    assert training.progress.step == 2
    assert training.progress.skipped == 0
    assert all(not torch.equal(a, p) for a, p in zip(before, training.model.parameters(), strict=True))


def test_released_hyper_parameters():
    ptb, wt2 = RECIPES["ptb-mos"], RECIPES["wt2-mos"]
    assert (ptb.model.embed_dim, ptb.model.hidden_sizes, ptb.model.n_components) == (280, (960, 960, 620), 15)
    assert (wt2.model.embed_dim, wt2.model.hidden_sizes, wt2.model.n_components) == (300, (1150, 1150, 650), 15)
    assert (ptb.train.lr, ptb.train.finetune_lr, ptb.train.batch_size, ptb.train.seed) == (20, 25, 12, 28)
    assert (wt2.train.lr, wt2.train.finetune_lr, wt2.train.batch_size, wt2.train.seed) == (15, 20, 15, 1882)
    assert (ptb.train.max_over_bptt, wt2.train.max_over_bptt) == (40, 20)


@pytest.mark.parametrize("name", ["ptb-mos", "wt2-mos"])
def test_the_plus_recipes_change_the_training_alone(name):
    faithful, plus = RECIPES[name], RECIPES[f"{name}-plus"]
    assert (plus.data, plus.model, plus.paper) == (faithful.data, faithful.model, ())
    changes = {"partial_shuffle", "averaging", "finetunes"}
    old, new = dataclasses.asdict(faithful.train), dataclasses.asdict(plus.train)
    assert {key for key in old if old[key] != new[key]} == changes
    assert (new["partial_shuffle"], new["averaging"], new["finetunes"]) == (True, "two-tailed", 3)
    others = [r.train for r in RECIPES.values() if not r.name.endswith("-plus")]
    assert not any(t.partial_shuffle or t.averaging != "nt-asgd" for t in others)


def test_override():
    recipe = override(
        get_recipe("ptb-mos"),
        ["train.lr=15", "model.hidden_sizes=96,62", "train.micro_batch_size=4", "model.tied=false", "data.level=char"],
    )
    assert recipe.train.lr == 15.0
    assert recipe.model.hidden_sizes == (96, 62)
    assert recipe.train.micro_batch_size == 4
    assert recipe.model.tied is False
    assert recipe.data.level == "char"
    assert override(recipe, ["train.micro_batch_size=none"]).train.micro_batch_size is None


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.lrr=15", 'no recipe key "train.lrr"; did you mean "train.lr"'),
        ("lr=15", 'no recipe key "lr"; did you mean "train.lr"'),
        ("n_components=5", 'no recipe key "n_components"; did you mean "model.n_components"'),
        ("train.lr", "is not a setting: write --set key=value"),
        ("train.lr=fast", 'train.lr must be a number, got "fast"'),
        ("train.batch_size=1.5", 'train.batch_size must be a whole number, got "1.5"'),
        ("model.head=mso", 'model.head cannot be "mso"; did you mean "mos"'),
        ("model.hidden_sizes=a,b", "whole numbers separated by commas"),
        ("model.dropout_input=1.5", "must be at least 0 and below 1"),
        ("model.n_components=0", "model.n_components must be positive"),
        ("train.lr=inf", "train.lr must be finite, got inf"),
        ("train.alpha=inf", "train.alpha must be finite, got inf"),
        ("train.max_epochs=0", "train.max_epochs must be positive, got 0"),
        ("train.lr=nan", "train.lr must be positive, got nan"),
        ("train.finetune_max_epochs=0", "train.finetune_max_epochs must be positive, got 0"),
        ("train.micro_batch_size=5", "must be a multiple of train.micro_batch_size"),
        ("model.head=softmax", "a tied softmax head needs its last hidden size"),
        ("train.averaging=two-tail", 'train.averaging cannot be "two-tail"; did you mean "two-tailed"'),
        ("train.partial_shuffle=2", 'train.partial_shuffle must be true or false, got "2"'),
        ("model.tied=perhaps", 'model.tied must be true or false, got "perhaps"'),
    ],
)
def test_bad_settings_get_one_sentence(setting, message):
    with pytest.raises(UserError, match=message):
        override(get_recipe("ptb-mos"), [setting])


def test_unknown_recipe():
    with pytest.raises(UserError, match='called "ptb-moss"; did you mean "ptb-mos"'):
        get_recipe("ptb-moss")


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_survives_the_run_folder(name):
    recipe = RECIPES[name]
    back = from_resolved(recipe.resolved(), "here")
    assert (back.data, back.model, back.train) == (recipe.data, recipe.model, recipe.train)
    with pytest.raises(UserError, match="here holds no recipe"):
        from_resolved({"name": "x"}, "here")


def test_overrides_are_what_differs_from_the_recipe():
    recipe = get_recipe("ptb-mos")
    assert overrides(recipe.resolved()) == {}
    stored = json.loads(json.dumps(override(recipe, ["model.n_components=5", "train.precision=mixed"]).resolved()))
    assert overrides(stored) == {"model.n_components": 5}  # precision is auto in the recipe
    del stored["train"]["window_multiple"]  # an older version had no such key
    assert overrides(stored) == {"model.n_components": 5}
    assert overrides(dataclasses.replace(recipe, name="mine").resolved()) == {}
