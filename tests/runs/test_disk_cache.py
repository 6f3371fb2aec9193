"""Cached results are reused only for the same options, model and text, and a broken cache is never an error."""

import dataclasses

import torch

from highrank.data.folders import cache_folder
from highrank.evaluation.dynamic import gradient_statistics
from highrank.models import build_model
from highrank.recipes import ModelSpec
from highrank.recipes.recipe import DynamicSettings
from highrank.runs.disk_cache import cached_reading, cached_statistics, fingerprint

IDS = torch.arange(60) % 5
SETTINGS = DynamicSettings(lr=0.05, lamb=0.3, epsilon=0.01, segment=5, stats_batch_size=4)


def make(head="mos", **changes):
    torch.manual_seed(2)
    options = {"head": head, "embed_dim": 4, "hidden_sizes": (6, 4), "n_components": 3} | changes
    return build_model(ModelSpec(**options), 5)


def test_equal_inputs_have_the_same_fingerprint():
    strided = torch.stack([IDS, IDS], dim=1)[:, 0]
    assert fingerprint("x", make(), IDS) == fingerprint("x", make().eval(), IDS.clone())
    assert fingerprint("x", make(), IDS) == fingerprint("x", make(), strided)


def test_every_different_input_has_another_fingerprint():
    other = make()
    other.head.bias.data[3] += 1e-6
    keys = {
        fingerprint("x", make(), IDS),
        fingerprint("y", make(), IDS),
        fingerprint("x", make("moc"), IDS),  # the same names, shapes and weights as mos
        fingerprint("x", make("softmax"), IDS),
        fingerprint("x", make().double(), IDS),
        fingerprint("x", make(hidden_sizes=(4, 6, 4)), IDS),
        fingerprint("x", other, IDS),
        fingerprint("x", make(), IDS[:-1]),
        fingerprint("x", make(), IDS.flip(0)),
    }
    assert len(keys) == 9


def is_computed(function, *arguments):
    """Call a function and return whether it computed its result, that is, reported progress."""
    calls = []
    function(*arguments, lambda *done: calls.append(done))
    return bool(calls)


def test_statistics_are_computed_once():
    model = make()
    assert is_computed(cached_statistics, model, IDS, SETTINGS)
    unrelated = dataclasses.replace(SETTINGS, lr=1.0, lamb=1.0, epsilon=1.0)
    assert not is_computed(cached_statistics, model, IDS, unrelated)
    expected = gradient_statistics(model, IDS, SETTINGS)
    assert all(map(torch.equal, cached_statistics(model, IDS, SETTINGS), expected))
    for changes in ({"segment": 6}, {"stats_batch_size": 5}):
        assert is_computed(cached_statistics, model, IDS, dataclasses.replace(SETTINGS, **changes))


def test_a_reading_is_computed_once():
    model = make()
    first = cached_reading(model, IDS)
    assert not is_computed(cached_reading, model, IDS)
    again = cached_reading(model, IDS)
    assert torch.equal(first.nll, again.nll)
    assert torch.equal(first.states, again.states)
    assert first.window == again.window
    assert is_computed(cached_reading, model, IDS[:-1])


def test_a_damaged_file_is_computed_again():
    model = make()
    first = cached_reading(model, IDS)
    (file,) = (cache_folder() / "readings").iterdir()
    file.write_bytes(file.read_bytes()[:50])
    assert torch.equal(cached_reading(model, IDS).nll, first.nll)


def test_an_unwritable_cache_is_not_an_error():
    cache_folder().parent.mkdir(parents=True, exist_ok=True)
    cache_folder().write_text("a file in place of the folder")
    assert cached_statistics(make(), IDS, SETTINGS)
