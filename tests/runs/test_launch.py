"""Training by the name of a recipe, from Python."""

import dataclasses
import os

import pytest

import highrank
from helpers import SMALL
from highrank.errors import UserError
from highrank.recipes import get_recipe
from highrank.runs.folder import Run
from highrank.training.callbacks import Callbacks

CHANGES = dict(setting.split("=") for setting in SMALL.split())


@pytest.fixture
def here(place, monkeypatch):
    monkeypatch.chdir(place)
    return place


def train(*arguments, **options):
    return highrank.train("ptb-mos", *arguments, settings=CHANGES, device="cpu", **options)


def test_a_run_is_trained_evaluated_and_taken_as_a_path(here):
    run = train("toy", max_epochs=1)
    assert run.folder.samefile(here / "runs" / "ptb-mos")
    assert run.outcome == "max-epochs"
    assert highrank.evaluate(run).perplexity == pytest.approx(run.test_ppl)
    assert highrank.load(run).run.folder == run.folder


def test_a_run_resumes_and_counts_epochs_over_the_whole_run(here):
    first = train("toy", max_epochs=1)
    second = highrank.train("ptb-mos", resume=True)
    assert second.folder == first.folder
    assert (second.outcome, second.summary.epochs) == ("finished", 3)


def test_a_run_resumes_with_the_same_corpus_but_without_its_data_folder(here):
    (here / "corpora").mkdir()
    (here / "toy").rename(here / "corpora" / "toy")
    first = train("toy", data_dir="corpora", max_epochs=0)
    assert train("toy", resume=True, max_epochs=0).folder == first.folder


def test_the_run_that_was_trained_last_is_resumed(here):
    first = train("toy", max_epochs=0)
    second = train("toy", max_epochs=0)
    os.utime(second.folder, (0, 0))  # the first folder is newer, as after an evaluation that was stored there
    assert highrank.train("ptb-mos", resume=True, max_epochs=0).folder == second.folder != first.folder


def test_settings_have_their_python_types(here):
    changes = {**CHANGES, "model.hidden_sizes": (12, 9), "train.lr": 0.123456789, "model.tied": False}
    run = highrank.train("ptb-mos", "toy", max_epochs=0, settings=changes)
    recipe = Run(run.folder).recipe()
    assert recipe.model.hidden_sizes == (12, 9)
    assert recipe.train.lr == 0.123456789
    assert not recipe.model.tied


def test_a_recipe_may_be_an_object(here):
    recipe = dataclasses.replace(get_recipe("ptb-mos"), name="mine")
    run = highrank.train(recipe, "toy", settings=CHANGES, max_epochs=0)
    assert run.folder.name == "mine"
    assert run.test_ppl is None


def test_callbacks_follow_the_progress(here):
    epochs = []
    callbacks = Callbacks()
    callbacks.epoch_done = lambda metrics: epochs.append(metrics.epoch)
    train("toy", max_epochs=2, callbacks=callbacks)
    assert epochs == [1, 2]


class Recorder(Callbacks):
    def __init__(self):
        self.events = []

    def training_started(self, setup):
        self.setup = setup
        self.events.append("started")

    def epoch_started(self, epoch, rows, row):
        self.events.append(epoch)

    def training_ended(self):
        self.events.append("ended")


def test_callbacks_are_called_when_training_starts_and_ends(here):
    callbacks = Recorder()
    run = train("toy", max_epochs=1, callbacks=callbacks)
    assert callbacks.events == ["started", 1, "ended"]
    assert callbacks.setup.folder == run.folder
    assert callbacks.setup.corpus.name == callbacks.setup.recipe.data.corpus == str(here / "toy")


def test_callbacks_are_called_when_training_fails(here):
    callbacks = Recorder()

    def fail():
        raise RuntimeError

    with pytest.raises(RuntimeError):
        train("toy", callbacks=callbacks, should_stop=fail)
    assert callbacks.events == ["started", 1, "ended"]


def test_a_training_that_is_stopped_is_saved_and_not_evaluated(here):
    run = train("toy", should_stop=lambda: True)
    assert (run.outcome, run.summary) == ("interrupted", None)
    assert Run(run.folder).has_checkpoint()


def test_settings_may_be_texts(here):
    run = train("toy", max_epochs=0)
    texts = [f"{key}={value}" for key, value in CHANGES.items()]
    other = highrank.train("ptb-mos", "toy", settings=texts, device="cpu", max_epochs=0)
    assert Run(other.folder).recipe() == Run(run.folder).recipe()


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"settings": {"train.rl": 1}}, "train.rl"),
        ({"finetune": True}, "resume"),
        ({"init_from": "run", "resume": True}, "resume"),
        ({"device": "gpu"}, "gpu"),
        ({"corpus": "nowhere"}, "nowhere"),
        ({"resume": True}, "ptb-mos"),
    ],
)
def test_a_wrong_argument_is_named(here, options, name):
    with pytest.raises(UserError, match=name):
        highrank.train("ptb-mos", **options)
    assert not (here / "runs").exists()
