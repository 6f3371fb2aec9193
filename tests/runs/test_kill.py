"""A kill at any moment leaves a consistent run, which resumes bit for bit."""

import os
import shutil
from pathlib import Path

import pytest
import torch

import highrank
from helpers import CPU, TOY, assert_same_run, changed
from highrank.runs import checkpoint as checkpoints
from highrank.runs.folder import Run
from highrank.runs.metrics import MetricsWriter
from highrank.runs.training import train_run
from highrank.training.stages import Training
from highrank.training.state import get_weights

RECIPE = changed(
    TOY, model={"head": "softmax", "hidden_sizes": (10, 6)}, bptt=90, max_epochs=3, finetunes=1, finetune_max_epochs=2
)
VALID = (3.0, 4.0, 2.0, 2.5, 1.0)  # validation losses by epoch; epochs 1, 3 and 5 are the best so far, 3 ends stage 0


@pytest.fixture(autouse=True)
def _scripted_validation(monkeypatch):
    monkeypatch.setattr(Training, "validate", lambda self: VALID[self.state.epoch])
    monkeypatch.setenv("HIGHRANK_COMMIT", "any")  # saves a call of git at every start


@pytest.fixture
def best(monkeypatch):
    """Collects the weights after every epoch, by its number."""
    weights = {}
    end_epoch = Training.end_epoch

    def watched(self, valid):
        with self.optimizer.averaged_weights():
            weights[self.state.epoch + 1] = get_weights(self.model)
        end_epoch(self, valid)

    monkeypatch.setattr(Training, "end_epoch", watched)
    return weights


def kill_everywhere(folder, places, monkeypatch, work):
    """Copy `folder` before every write, rename and removal that `work` makes there: these are what kills leave."""
    copies = []
    seen = set()

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
        patched.setattr(MetricsWriter, "write", watched(MetricsWriter.write))
        work()
    return copies


def assert_consistent(run, best):
    """Check that the state of the run describes the weights in its folder."""
    state = checkpoints.read(run.folder).state
    assert (run.model_file is not None) == (state.best_valid is not None)
    if state.best_valid is not None:
        assert state.best_valid == VALID[state.best_epoch - 1] == min(VALID[: state.epoch])
        for name, p in highrank.load(run.folder).model.named_parameters():
            assert torch.equal(p, best[state.best_epoch][name]), (run.folder.name, name)


@pytest.mark.parametrize("every_epoch", [True, False])
def test_a_run_killed_at_any_moment_resumes_exactly(toy_corpus, tmp_path, monkeypatch, best, every_epoch):
    if every_epoch:  # save after every epoch
        monkeypatch.setattr("highrank.training.loop.EPOCH_CHECKPOINT_SECONDS", 0.0)
    whole = Run(tmp_path / "whole")
    train_run(RECIPE, toy_corpus, whole, CPU, max_epochs=0)
    kills = kill_everywhere(
        whole.folder, tmp_path, monkeypatch, lambda: train_run(RECIPE, toy_corpus, whole, CPU, resume=True)
    )
    assert len(kills) > (30 if every_epoch else 10)
    for run in kills:
        assert_consistent(run, best)
    for run in kills:
        assert train_run(RECIPE, toy_corpus, run, CPU, resume=True) == "finished"
        assert_same_run(whole, run)
        assert_consistent(run, best)
        assert {path.name for path in run.folder.iterdir()} == {path.name for path in whole.folder.iterdir()}


def test_finetuning_killed_at_any_moment_resumes_exactly(toy_corpus, tmp_path, monkeypatch, best):
    whole = Run(tmp_path / "whole")
    train_run(RECIPE, toy_corpus, whole, CPU, max_epochs=2)

    def finetune(run, request):
        return train_run(RECIPE, toy_corpus, run, CPU, resume=True, finetune=request)

    kills = kill_everywhere(whole.folder, tmp_path, monkeypatch, lambda: finetune(whole, True))
    for run in kills:
        assert_consistent(run, best)
        assert finetune(run, checkpoints.read(run.folder).state.stage == 0) == "finished"
        assert_same_run(whole, run)
        assert_consistent(run, best)
