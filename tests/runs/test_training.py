"""Training on disk: exact resume, finetuning on request, pieces, and errors."""

import math

import pytest
import torch

import highrank
from helpers import CPU, LEARNER, TOY, assert_same_run, changed, epochs
from highrank.errors import UserError
from highrank.files import read_tensors
from highrank.runs import checkpoint as checkpoints
from highrank.runs.folder import Run
from highrank.runs.training import train_run, weight_copies
from highrank.training.callbacks import Callbacks
from highrank.training.checkpoint import take_checkpoint
from highrank.training.stages import Training

STAGED = changed(LEARNER, nonmono=1, max_epochs=40, finetunes=1, finetune_max_epochs=3)


class Killed(BaseException):
    """Ends training like a kill: nothing remains but the last checkpoint."""


class Killer(Callbacks):
    """Kills training after a number of windows."""

    def __init__(self, windows):
        self.left = windows

    def update_done(self, metrics):
        self.left -= 1
        if self.left < 0:
            raise Killed


# --- resume ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop_after", [7, 37])
def test_an_interrupted_run_resumes_exactly(toy_corpus, tmp_path, stop_after):
    recipe = changed(nonmono=1, max_epochs=3, finetunes=1, finetune_max_epochs=2)
    whole, cut = Run(tmp_path / "whole"), Run(tmp_path / "cut")
    train_run(recipe, toy_corpus, whole, CPU)
    calls = 0

    def stop():
        nonlocal calls
        calls += 1
        return calls % stop_after == 0

    outcome = train_run(recipe, toy_corpus, cut, CPU, should_stop=stop)
    assert outcome == "interrupted"
    rounds = 0
    while outcome == "interrupted":
        torch.manual_seed(rounds)  # the process may have used the generator in between
        outcome = train_run(recipe, toy_corpus, cut, CPU, resume=True, should_stop=stop)
        rounds += 1
    assert outcome == "finished"
    assert_same_run(whole, cut)


def test_a_killed_run_resumes_exactly(toy_corpus, tmp_path):
    recipe = changed(
        LEARNER, bptt=20, max_epochs=5, finetunes=2, finetune_max_epochs=1, partial_shuffle=True, averaging="two-tailed"
    )
    whole, cut = Run(tmp_path / "whole"), Run(tmp_path / "cut")
    train_run(recipe, toy_corpus, whole, CPU)
    kills = 0
    outcome = None
    while outcome is None:
        torch.manual_seed(kills)
        try:
            outcome = train_run(
                recipe, toy_corpus, cut, CPU, resume=kills > 0, checkpoint_every=0.0, callbacks=Killer(13)
            )
        except Killed:
            kills += 1
            assert kills < 100  # every start gets further
    assert outcome == "finished"
    assert kills >= 4
    assert_same_run(whole, cut)
    a, b = (checkpoints.read(run.folder).state for run in (whole, cut))
    for key in ("window_rng", "offsets"):
        assert getattr(a, key) == getattr(b, key)
    assert any(line["averaged"] for line in epochs(whole))


def test_a_run_killed_before_its_first_checkpoint_starts_again(toy_corpus, tmp_path):
    run, whole = Run(tmp_path / "run"), Run(tmp_path / "whole")
    run.create(TOY, toy_corpus, CPU, None)
    train_run(TOY, toy_corpus, run, CPU, resume=True)
    train_run(TOY, toy_corpus, whole, CPU)
    assert_same_run(run, whole)


def test_every_start_that_trains_is_a_piece(toy_corpus, tmp_path):
    run = Run(tmp_path / "run")

    def outcomes():
        return [piece.outcome for piece in checkpoints.read(run.folder).pieces]

    train_run(TOY, toy_corpus, run, CPU, max_epochs=0)
    assert outcomes() == []
    train_run(TOY, toy_corpus, run, CPU, resume=True, time_budget=1e-6)
    train_run(TOY, toy_corpus, run, CPU, resume=True, max_epochs=0)
    assert outcomes() == ["time-budget"]
    for _ in range(2):
        assert train_run(TOY, toy_corpus, run, CPU, resume=True) == "finished"
        assert outcomes() == ["time-budget", "finished"]
    assert len(epochs(run)) == 4


def test_load_returns_model_words_and_recipe(toy_corpus, tmp_path):
    train_run(changed(max_epochs=1), toy_corpus, Run(tmp_path / "run"), CPU)
    loaded = highrank.load(tmp_path / "run")
    assert not loaded.model.training
    assert loaded.words == toy_corpus.words
    assert loaded.recipe.model == TOY.model


# --- finetuning on request ------------------------------------------------------------------------------------------


def test_finetuning_on_request_equals_finetuning_by_the_rules(toy_corpus, tmp_path):
    by_rule, asked = Run(tmp_path / "by-rule"), Run(tmp_path / "asked")
    assert train_run(changed(STAGED, max_epochs=4), toy_corpus, by_rule, CPU) == "finished"
    assert train_run(STAGED, toy_corpus, asked, CPU, max_epochs=4) == "max-epochs"
    assert train_run(STAGED, toy_corpus, asked, CPU, resume=True, finetune=True) == "finished"
    curves = [[(line["epoch"], line["stage"], line["valid_nll"]) for line in epochs(run)] for run in (asked, by_rule)]
    assert curves[0] == curves[1]
    assert [stage for _, stage, _ in curves[0]] == ["train"] * 4 + ["finetune-1"] * 3
    ours, theirs = (read_tensors(run.model_file, "model") for run in (asked, by_rule))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    (ours,), (theirs,) = (checkpoints.read(run.folder).state.stages for run in (asked, by_rule))
    assert (ours.valid_ppl, ours.test_ppl) == (theirs.valid_ppl, theirs.test_ppl)
    assert (ours.ended, theirs.ended) == ("on request", None)


def test_a_new_stage_is_saved_before_its_first_window(toy_corpus, tmp_path):
    run = Run(tmp_path / "run")
    train_run(STAGED, toy_corpus, run, CPU, max_epochs=2)
    saved = []

    def stop():
        saved.append(checkpoints.read(run.folder).state)
        return True

    train_run(STAGED, toy_corpus, run, CPU, resume=True, finetune=True, should_stop=stop)
    assert (saved[0].stage, saved[0].stage_epoch, saved[0].row) == (1, 0, 0)


def test_a_finished_run_can_be_finetuned_again(toy_corpus, tmp_path):
    run = Run(tmp_path / "run")
    recipe = changed(STAGED, max_epochs=2)
    assert train_run(recipe, toy_corpus, run, CPU) == "finished"
    before = checkpoints.read(run.folder).state
    assert train_run(recipe, toy_corpus, run, CPU, resume=True, finetune=True) == "finished"
    after = checkpoints.read(run.folder).state
    assert (before.stage, before.epoch, after.stage, after.epoch) == (1, 5, 2, 8)
    assert after.best_valid <= before.best_valid


# --- errors ---------------------------------------------------------------------------------------------------------


def test_finetuning_needs_a_completed_epoch(toy_corpus, tmp_path):
    run = Run(tmp_path / "run")
    train_run(STAGED, toy_corpus, run, CPU, max_epochs=0)
    with pytest.raises(UserError):
        train_run(STAGED, toy_corpus, run, CPU, resume=True, finetune=True)


def test_a_diverged_run_names_its_folder(toy_corpus, tmp_path, monkeypatch):
    original = Training.__init__

    def diverged(self, *arguments, **options):
        original(self, *arguments, **options)
        self.model.head.bias.data.fill_(math.nan)

    monkeypatch.setattr(Training, "__init__", diverged)
    with pytest.raises(UserError, match=r"train\.lr.*" + str(tmp_path / "run")):
        train_run(TOY, toy_corpus, Run(tmp_path / "run"), CPU)


@pytest.mark.parametrize("averaging", ["none", "nt-asgd", "two-tailed"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_the_memory_for_training_counts_every_copy_of_the_weights(toy_corpus, averaging, optimizer):
    recipe = changed(averaging=averaging, optimizer=optimizer)
    training = Training(recipe, toy_corpus, CPU)
    if averaging != "none":
        training.optimizer.start_averaging()
    sizes = [tensor.numel() for name, tensor in take_checkpoint(training).tensors.items() if "rng" not in name]
    n_weights = training.model.n_parameters()
    assert weight_copies(recipe) == sum(sizes) // n_weights + 3  # gradient, best weights, checkpoint


def test_two_processes_cannot_train_in_one_folder(toy_corpus, tmp_path):
    run = Run(tmp_path / "run")
    train_run(TOY, toy_corpus, run, CPU, max_epochs=0)
    with run.locked(), pytest.raises(UserError, match="run"):
        train_run(TOY, toy_corpus, run, CPU, resume=True)
