import dataclasses
import json

import numpy as np
import pytest
import torch

from helpers import write_toy_dialogs
from highrank.data.dialog import read_dialog_corpus
from highrank.errors import UserError
from highrank.recipes import ALL_RECIPES, DIALOG_RECIPES, RECIPES, get_recipe, override, overrides
from highrank.recipes.settings import check, flat, format_setting, from_resolved
from highrank.training.stages import Training


def shrink(recipe):
    """A recipe at toy size: its structure, dropouts and schedule, with small layers and short windows."""
    sizes = tuple(max(4, h // 80) for h in recipe.model.hidden_sizes)
    embed = sizes[-1] if recipe.model.head == "softmax" else 4
    model = dataclasses.replace(recipe.model, embed_dim=embed, hidden_sizes=sizes)
    train = dataclasses.replace(recipe.train, batch_size=min(recipe.train.batch_size, 15), bptt=8, max_over_bptt=3)
    return dataclasses.replace(recipe, model=model, train=train)


def shrink_dialog(recipe):
    """Return a dialog recipe with small layers; a softmax needs its attention as large as its embedding."""
    attention = 6 if recipe.model.head == "softmax" else 7
    model = dataclasses.replace(recipe.model, embed_dim=6, encoder_size=5, decoder_size=8, attention_size=attention)
    return dataclasses.replace(recipe, model=model, train=dataclasses.replace(recipe.train, batch_size=8))


@pytest.mark.parametrize("name", ALL_RECIPES)
def test_every_recipe_takes_two_steps(name, toy_corpus, tmp_path):
    if name in DIALOG_RECIPES:
        recipe = shrink_dialog(get_recipe(name))
        corpus = read_dialog_corpus(write_toy_dialogs(tmp_path / "dialogs"))
    else:
        recipe = shrink(get_recipe(name))
        corpus = toy_corpus
    check(recipe)
    training = Training(recipe, corpus, torch.device("cpu"))
    before = [p.detach().clone() for p in training.model.parameters()]
    for _, minibatch in zip(range(2), training.minibatches(), strict=False):
        training.update(minibatch)
        assert np.isfinite(training.read_totals())
    assert training.state.step == 2
    assert training.state.skipped == 0
    assert all(not torch.equal(a, p) for a, p in zip(before, training.model.parameters(), strict=True))


def test_recipes_have_the_released_hyper_parameters():
    ptb, wt2 = RECIPES["ptb-mos"], RECIPES["wt2-mos"]
    assert (ptb.model.embed_dim, ptb.model.hidden_sizes, ptb.model.n_components) == (280, (960, 960, 620), 15)
    assert (wt2.model.embed_dim, wt2.model.hidden_sizes, wt2.model.n_components) == (300, (1150, 1150, 650), 15)
    assert (ptb.train.lr, ptb.train.finetune_lr, ptb.train.batch_size, ptb.train.seed) == (20, 25, 12, 28)
    assert (wt2.train.lr, wt2.train.finetune_lr, wt2.train.batch_size, wt2.train.seed) == (15, 20, 15, 1882)
    assert (ptb.train.max_over_bptt, wt2.train.max_over_bptt) == (40, 20)


@pytest.mark.parametrize("name", ["ptb-mos", "wt2-mos"])
def test_the_plus_recipes_change_only_the_training(name):
    faithful, plus = RECIPES[name], RECIPES[f"{name}-plus"]
    assert (plus.data, plus.model, plus.paper) == (faithful.data, faithful.model, ())
    changes = {"partial_shuffle", "averaging", "finetunes"}
    old, new = dataclasses.asdict(faithful.train), dataclasses.asdict(plus.train)
    assert {key for key in old if old[key] != new[key]} == changes
    assert (new["partial_shuffle"], new["averaging"], new["finetunes"]) == (True, "two-tailed", 3)
    others = [r.train for r in RECIPES.values() if r.paper and r.data.level == "word"]
    assert not any(t.partial_shuffle or t.averaging == "two-tailed" for t in others)


def test_settings_override_values_of_every_type():
    recipe = override(
        get_recipe("ptb-mos"),
        ["train.lr=15", "model.hidden_sizes=96,62", "train.updates_per_epoch=4", "model.tied=false", "data.level=char"],
    )
    assert recipe.train.lr == 15.0
    assert recipe.model.hidden_sizes == (96, 62)
    assert recipe.train.updates_per_epoch == 4
    assert recipe.model.tied is False
    assert recipe.data.level == "char"
    assert override(recipe, ["train.updates_per_epoch=none"]).train.updates_per_epoch is None


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        ("train.lrr=15", '"train.lrr".*"train.lr"'),
        ("lr=15", '"lr".*"train.lr"'),
        ("n_components=5", '"n_components".*"model.n_components"'),
        ("train.n_component=5", '"train.n_component".*"model.n_components"'),
        ("train.epochs=5", '"train.epochs".*"train.max_epochs"'),
        ("train.learning_rate=5", "highrank recipes ptb-mos"),  # no key is close
        ("train.lr", "train.lr"),
        ("train.lr=fast", 'train.lr .*"fast"'),
        ("train.batch_size=1.5", 'train.batch_size .*"1.5"'),
        ("model.head=mso", 'model.head .*"mso".*"mos"'),
        ("model.hidden_sizes=a,b", "model.hidden_sizes"),
        ("model.hidden_sizes=", "model.hidden_sizes"),
        ("model.hidden_sizes=8,0", "model.hidden_sizes"),
        ("model.dropout_input=1.5", "model.dropout_input"),
        ("model.weight_drop=1", "model.weight_drop"),
        ("model.n_components=0", "model.n_components"),
        ("train.lr=inf", "train.lr"),
        ("train.lr=nan", "train.lr"),
        ("train.finetune_lr=0", "train.finetune_lr"),
        ("train.alpha=inf", "train.alpha"),
        ("train.alpha=-1", "train.alpha"),
        ("model.lower_components=15", "model.lower_components"),
        ("model.lower_components=0", "model.lower_components"),
        ("model.lower_components=2,2,2", "model.lower_components"),
        ("train.input_noise=-0.1", "train.input_noise"),
        ("train.adversarial=-1", "train.adversarial"),
        ("train.sample_below=1.5", "train.sample_below"),
        ("train.clip=0", "train.clip"),
        ("train.max_epochs=0", "train.max_epochs"),
        ("train.finetune_max_epochs=0", "train.finetune_max_epochs"),
        ("train.updates_per_epoch=0", "train.updates_per_epoch"),
        ("train.seed=9223372036854775808", "train.seed"),
        ("model.head=softmax", "model.embed_dim"),
        ("train.averaging=two-tail", 'train.averaging .*"two-tailed"'),
        ("train.partial_shuffle=2", "train.partial_shuffle"),
        ("model.tied=perhaps", "model.tied"),
    ],
)
def test_a_bad_setting_names_its_key(setting, names):
    with pytest.raises(UserError, match=names):
        override(get_recipe("ptb-mos"), [setting])


@pytest.mark.parametrize(
    "setting",
    ["train.clip=inf", "train.alpha=0", "train.finetunes=0", "train.finetune_lr=none", "train.finetune_adversarial=0"],
)
def test_values_that_turn_something_off_are_valid(setting):
    override(get_recipe("ptb-mos"), [setting])


@pytest.mark.parametrize("name", ALL_RECIPES)
def test_formatted_settings_can_be_set(name):
    recipe = get_recipe(name)
    formatted = [f"{key}={format_setting(value)}" for key, value in flat(recipe.resolved()).items()]
    assert override(recipe, formatted) == recipe


def test_a_formatted_number_is_exact():
    assert float(format_setting(0.123456789)) == 0.123456789


def test_an_unknown_recipe_suggests_the_nearest():
    with pytest.raises(UserError, match=r'"ptb-moss".*"ptb-mos"'):
        get_recipe("ptb-moss")


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        ("model.hidden_sizes=8", "model.hidden_sizes"),
        ("train.bptt=8", "train.bptt"),
        ("decoding.beam=8", '"decoding.beam".*"decoding.beam_size"'),
        ("decoding.beam_size=4", "decoding.n_best"),
        ("model.head=softmax", "model.attention_size"),
        ("data.context_size=0", "data.context_size"),
    ],
)
def test_a_bad_setting_of_a_dialog_recipe_names_its_key(setting, names):
    with pytest.raises(UserError, match=names):
        override(get_recipe("swda-mos"), [setting])


def test_settings_override_every_part_of_a_dialog_recipe():
    recipe = override(
        get_recipe("swda-mos"), ["data.context_size=5", "model.n_components=3", "decoding.length_penalty=0"]
    )
    assert (recipe.data.context_size, recipe.model.n_components, recipe.decoding.length_penalty) == (5, 3, 0.0)


@pytest.mark.parametrize("name", ALL_RECIPES)
def test_a_resolved_recipe_can_be_rebuilt_from_json(name):
    recipe = ALL_RECIPES[name]
    back = from_resolved(json.loads(json.dumps(recipe.resolved())), "run.json")
    assert back.specs() == recipe.specs()


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"train": {}}, "train.lr"),
        ({"model": None}, "model"),
        ({"train": {"lr": "fast", "batch_size": 1, "seed": 1}}, "train.lr"),
        ({"train": {"lr": -1.0, "batch_size": 1, "seed": 1}}, "train.lr"),
        ({"data": {"corpus": "penn", "title": ""}}, "data.title"),
    ],
    ids=str,
)
def test_an_invalid_resolved_recipe_names_its_file_and_key(change, key):
    stored = json.loads(json.dumps(RECIPES["ptb-mos"].resolved() | change))
    with pytest.raises(UserError, match=rf"run\.json.*{key}"):
        from_resolved(stored, "run.json")


def test_overrides_are_the_keys_that_differ_from_the_recipe():
    recipe = get_recipe("ptb-mos")
    assert overrides(recipe.resolved()) == {}
    assert overrides(override(recipe, ["model.n_components=5"]).resolved()) == {"model.n_components": 5}


def test_the_precision_that_auto_chose_is_not_an_override():
    assert overrides(override(get_recipe("ptb-mos"), ["train.precision=mixed"]).resolved()) == {}


def test_a_recipe_of_another_name_has_no_overrides():
    assert overrides(dataclasses.replace(get_recipe("ptb-mos"), name="mine").resolved()) == {}
