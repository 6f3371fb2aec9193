"""A kill at any moment leaves a run that speaks of the weights it has, and that goes on as if nothing had happened."""

import os
import shutil
from pathlib import Path

import pytest
import torch

import highrank
from helpers import CPU, TOY, assert_same_run, changed
from highrank.runs import checkpoint as checkpoints
from highrank.runs.folder import Run
from highrank.runs.metrics import Metrics
from highrank.training.loop import train
from highrank.training.stages import Training

RECIPE = changed(
    TOY, model={"head": "softmax", "hidden_sizes": (10, 6)}, bptt=90, max_epochs=3, finetunes=1, finetune_max_epochs=2
)
VALID = (3.0, 4.0, 2.0, 2.5, 1.0)  # by epoch: the best, not, the best and a stage's end, not, the best


@pytest.fixture(autouse=True)
def _scripted(monkeypatch):
    monkeypatch.setattr(Training, "validate", lambda self: VALID[self.progress.epoch])
    monkeypatch.setenv("HIGHRANK_COMMIT", "any")  # a run asks git for it whenever it starts


@pytest.fixture
def best(monkeypatch):
    """The weights of every epoch, by its number."""
    weights, end_epoch = {}, Training.end_epoch

    def watched(self, valid):
        with self.optimizer.averaged_weights():
            now = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        weights[self.progress.epoch + 1] = now
        end_epoch(self, valid)

    monkeypatch.setattr(Training, "end_epoch", watched)
    return weights


def moments(folder, places, monkeypatch, work):
    """Copies of `folder` before every write, renaming and removal that `work` makes in it: what kills leave there."""
    copies, seen = [], set()

    def watched(call):
        def act(*arguments, **options):
            now = tuple(sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir()))
            if now not in seen:
                seen.add(now)
                copies.append(Run(Path(shutil.copytree(folder, places / f"kill-{len(copies)}"))))
            return call(*arguments, **options)

        return act

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", watched(os.replace))
        patched.setattr(Path, "unlink", watched(Path.unlink))
        patched.setattr(Metrics, "write", watched(Metrics.write))
        work()
    return copies


def assert_speaks_of_its_weights(run, best):
    progress = checkpoints.load_progress(run.folder)
    assert run.model_file.exists() == (progress.best_valid is not None)
    if progress.best_valid is not None:
        assert progress.best_valid == VALID[progress.best_epoch - 1] == min(VALID[: progress.epoch])
        for name, p in highrank.load(run.folder).model.named_parameters():
            assert torch.equal(p, best[progress.best_epoch][name]), (run.folder.name, name)


@pytest.mark.parametrize("every_epoch", [True, False])
def test_a_kill_at_any_moment_of_a_run(toy_corpus, tmp_path, monkeypatch, best, every_epoch):
    if every_epoch:  # is saved
        monkeypatch.setattr("highrank.training.loop.EPOCH_CHECKPOINT_SECONDS", 0.0)
    whole = Run(tmp_path / "whole")
    train(RECIPE, toy_corpus, whole, CPU, max_epochs=0)
    kills = moments(whole.folder, tmp_path, monkeypatch, lambda: train(RECIPE, toy_corpus, whole, CPU, resume=True))
    assert len(kills) > (30 if every_epoch else 10)
    for run in kills:
        assert_speaks_of_its_weights(run, best)
    for run in kills:
        assert train(RECIPE, toy_corpus, run, CPU, resume=True) == "finished"
        assert_same_run(whole, run)
        assert_speaks_of_its_weights(run, best)
        assert {path.name for path in run.folder.iterdir()} == {path.name for path in whole.folder.iterdir()}


def test_a_kill_at_any_moment_of_finetuning_on_request(toy_corpus, tmp_path, monkeypatch, best):
    whole = Run(tmp_path / "whole")
    train(RECIPE, toy_corpus, whole, CPU, max_epochs=2)

    def finetune(run, asked):
        return train(RECIPE, toy_corpus, run, CPU, resume=True, finetune=asked)

    kills = moments(whole.folder, tmp_path, monkeypatch, lambda: finetune(whole, True))
    for run in kills:
        assert_speaks_of_its_weights(run, best)
        assert finetune(run, checkpoints.load_progress(run.folder).stage == 0) == "finished"
        assert_same_run(whole, run)
        assert_speaks_of_its_weights(run, best)
