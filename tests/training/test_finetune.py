"""Finetuning on request: `train(..., finetune=True)` ends the stage at hand, as the rules would."""

import pytest
import torch

from helpers import CPU, LEARNER, changed, epochs
from highrank.errors import UserError
from highrank.files import read_tensors
from highrank.runs import checkpoint as checkpoints
from highrank.runs.folder import Run
from highrank.training.loop import train

LONG = changed(LEARNER, nonmono=1, max_epochs=40, finetunes=1, finetune_max_epochs=3)


def curve(run):
    return [(line["epoch"], line["stage"], line["valid_nll"]) for line in epochs(run)]


def test_on_request_it_is_what_the_rules_would_have_made_of_it(toy_corpus, tmp_path):
    by_rule, asked = Run(tmp_path / "by-rule"), Run(tmp_path / "asked")
    assert train(changed(LONG, max_epochs=4), toy_corpus, by_rule, CPU) == "finished"
    assert train(LONG, toy_corpus, asked, CPU, max_epochs=4) == "max-epochs"
    assert train(LONG, toy_corpus, asked, CPU, resume=True, finetune=True) == "finished"
    assert curve(asked) == curve(by_rule)
    assert [line["stage"] for line in epochs(asked)] == ["train"] * 4 + ["finetune-1"] * 3
    ours, theirs = (read_tensors(run.model_file, "model") for run in (asked, by_rule))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    (ours,), (theirs,) = (checkpoints.load_progress(run.folder).stages for run in (asked, by_rule))
    assert ours | {"seconds": 0} == theirs | {"seconds": 0, "ended": "on request"}


def test_the_rest_of_an_epoch_is_left_out(toy_corpus, tmp_path):
    run = Run(tmp_path / "run")
    train(LONG, toy_corpus, run, CPU, max_epochs=2)
    asked = iter([False, True])
    assert train(LONG, toy_corpus, run, CPU, resume=True, should_stop=lambda: next(asked)) == "interrupted"
    assert checkpoints.load_progress(run.folder).row > 0
    told = []

    def stop_at_once():
        told.append(checkpoints.load(run.folder))
        return True

    train(LONG, toy_corpus, run, CPU, resume=True, finetune=True, should_stop=stop_at_once)
    saved = told[0].progress  # before the first window was done: what a kill would leave
    assert (saved.stage, saved.stage_epoch, saved.epoch, saved.row, saved.loss_tokens) == (1, 0, 2, 0, 0)
    assert not any(x.any() for state in told[0].hidden for pair in state for x in pair)


def test_a_kill_while_the_new_stage_is_saved_leaves_the_old_one(toy_corpus, tmp_path, monkeypatch):
    run = Run(tmp_path / "run")
    recipe = changed(LONG, averaging="two-tailed")
    train(recipe, toy_corpus, run, CPU, max_epochs=4)
    before = checkpoints.load(run.folder)

    def kill(path, value):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "write_json", kill)  # the tensors are there, what they belong to is not
        with pytest.raises(KeyboardInterrupt):
            train(recipe, toy_corpus, run, CPU, resume=True, finetune=True)
    after = checkpoints.load(run.folder)
    assert after.progress == before.progress
    for mine, theirs in ((after.weights, before.weights), (after.averages, before.averages)):
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    train(recipe, toy_corpus, run, CPU, resume=True, finetune=True, max_epochs=5)
    assert len(list(run.folder.glob("checkpoint-*.safetensors"))) == 1


def test_a_finished_run_can_be_finetuned_again(toy_corpus, tmp_path):
    run = Run(tmp_path / "run")
    assert train(changed(LONG, max_epochs=2), toy_corpus, run, CPU) == "finished"
    before = checkpoints.load_progress(run.folder)
    assert train(changed(LONG, max_epochs=2), toy_corpus, run, CPU, resume=True, finetune=True) == "finished"
    after = checkpoints.load_progress(run.folder)
    assert (before.stage, before.epoch, after.stage, after.epoch) == (1, 5, 2, 8)
    assert after.best_valid <= before.best_valid


def test_there_must_be_weights_to_finetune(toy_corpus, tmp_path):
    run = Run(tmp_path / "run")
    train(LONG, toy_corpus, run, CPU, max_epochs=0)
    with pytest.raises(UserError, match="has no weights to finetune yet: train it for an epoch first"):
        train(LONG, toy_corpus, run, CPU, resume=True, finetune=True)
