"""Checkpoints on disk: everything is restored, and nothing is left behind."""

import dataclasses
import json
import math

import pytest
import torch

from highrank.errors import UserError
from highrank.runs.checkpoint import Piece, load, read, save
from highrank.training.checkpoint import Checkpoint
from highrank.training.state import TrainingState

PIECE = Piece(
    highrank="0.1", commit=None, python="3.12", torch="2.11", machine="a CPU", started="2026-01-01",
    epoch=0, seconds=0.0, time_budget=None, outcome="max-epochs",
)  # fmt: skip


def make(**changes):
    state = TrainingState(stage=1, epoch=2, step=3, history=[3.0, 2.5], best_valid=2.5, best_epoch=1)
    tensors = {"weights/a": torch.ones(2), "hidden": torch.zeros(2, 3).t(), "rng/torch": torch.zeros(4).byte()}
    return dataclasses.replace(Checkpoint(state, tensors, best={"a": torch.full((2,), 5.0)}), **changes)


def assert_same_tensors(a, b):
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_checkpoint_is_restored_exactly(tmp_path):
    checkpoint = make()
    save(tmp_path, checkpoint, [PIECE], 77)
    restored = load(tmp_path)
    assert restored.state == checkpoint.state
    assert_same_tensors(restored.tensors, checkpoint.tensors)
    assert_same_tensors(restored.best, checkpoint.best)
    assert read(tmp_path).pieces == [PIECE]
    assert read(tmp_path).metrics_bytes == 77


def test_the_first_epoch_has_no_best_weights(tmp_path):
    save(tmp_path, make(best=None), [], 0)
    assert load(tmp_path).best is None


def test_losses_that_are_not_finite_are_restored(tmp_path):
    save(tmp_path, make(state=TrainingState(history=[math.inf], loss_sum=math.nan)), [], 0)
    state = read(tmp_path).state
    assert state.history == [math.inf]
    assert math.isnan(state.loss_sum)


def test_saving_removes_old_files_and_nothing_else(tmp_path):
    save(tmp_path, make(), [], 0)
    for name in (
        ".other.45.tmp",
        "checkpoint-x.txt",
        "model-7.safetensors",  # of an epoch after the last checkpoint
    ):
        (tmp_path / name).write_text("")
    save(tmp_path, make(state=dataclasses.replace(make().state, step=4)), [], 0)
    assert {path.name for path in tmp_path.iterdir()} == {
        "checkpoint.json", "checkpoint-4-2-1.safetensors", "model-1.safetensors", ".other.45.tmp", "checkpoint-x.txt",
    }  # fmt: skip


def test_best_weights_are_written_once(tmp_path):
    save(tmp_path, make(), [], 0)
    written = (tmp_path / "model-1.safetensors").stat().st_mtime_ns
    save(tmp_path, make(), [], 0)
    assert (tmp_path / "model-1.safetensors").stat().st_mtime_ns == written


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"unknown": 1}, "unknown"),
        ({"metrics_bytes": "many"}, "metrics_bytes"),
        ({"tensors": 3}, "tensors"),
        ({"state": {"epoch": None}}, r"state\.epoch"),
        ({"state": {"history": [1.0, "two"]}}, r"state\.history\[1\]"),
        ({"pieces": [{}]}, r"pieces\[0\]"),
    ],
)
def test_a_damaged_file_raises_an_error_that_names_the_key(tmp_path, change, key):
    save(tmp_path, make(), [], 0)
    path = tmp_path / "checkpoint.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=rf"checkpoint\.json.*{key}"):
        load(tmp_path)
