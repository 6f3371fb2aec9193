"""A checkpoint on disk: everything comes back as it was, and nothing is left behind."""

import json
import math

import pytest
import torch

from highrank.errors import UserError
from highrank.runs.checkpoint import Checkpoint, ShortAverage, load, load_progress, save
from highrank.training.state import Progress


def make(step=3, averages=True, micro_batches=12):
    def tensors(seed):
        return {name: torch.full((2,), float(seed + i)) for i, name in enumerate("ab")}

    hidden = [[(torch.full((1, 2), 10.0 * m), torch.full((1, 2), 10.0 * m + 1))] for m in range(micro_batches)]
    return Checkpoint(
        progress=Progress(stage=1, epoch=2, step=step, history=[3.0, 2.5], best_valid=2.5),
        weights=tensors(1),
        averages=tensors(5) if averages else None,
        n_averaged=7,
        hidden=hidden,
        window_rng={"state": 1},
        torch_rng=torch.arange(4, dtype=torch.uint8),
        cuda_rng=None,
        short=ShortAverage(tensors(9), 4, True, False) if averages else None,
    )


@pytest.mark.parametrize("averages", [True, False])
def test_everything_comes_back(tmp_path, averages):
    saved = make(averages=averages)
    save(tmp_path, saved)
    found = load(tmp_path)
    assert found.progress == saved.progress == load_progress(tmp_path)
    assert (found.n_averaged, found.window_rng, found.cuda_rng) == (7, {"state": 1}, None)
    assert torch.equal(found.torch_rng, saved.torch_rng)
    assert [[h[0, 0].item(), c[0, 0].item()] for ((h, c),) in found.hidden] == [
        [10.0 * m, 10.0 * m + 1] for m in range(12)
    ]
    for mine, theirs in ((found.weights, saved.weights), (found.averages, saved.averages)):
        assert (mine is None) == (theirs is None)
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs or {})
    assert (found.short is None) == (not averages)
    if averages:
        assert found.short[1:] == (4, True, False)
        assert all(torch.equal(found.short.weights[name], saved.short.weights[name]) for name in "ab")


def test_what_an_export_leaves_out_and_a_gpu_adds(tmp_path):
    saved = make(micro_batches=0)
    saved.cuda_rng = torch.arange(3, dtype=torch.uint8)
    save(tmp_path, saved)
    found = load(tmp_path)
    assert found.hidden == []
    assert torch.equal(found.cuda_rng, saved.cuda_rng)


def test_what_is_ours_and_old_goes_and_nothing_else(tmp_path):
    save(tmp_path, make(step=3))
    for name in (
        ".checkpoint-9-9.safetensors.123.tmp",
        ".model.safetensors.45.tmp",
        ".other.45.tmp",
        "checkpoint-x.txt",
        "checkpoint-2-1.safetensors",  # as earlier versions named it
        "checkpoint-best-7.safetensors",  # of an epoch that no checkpoint came to know
    ):
        (tmp_path / name).write_text("")
    save(tmp_path, make(step=4))
    assert {path.name for path in tmp_path.iterdir()} == {
        "checkpoint.json", "checkpoint-4-2-1.safetensors", ".other.45.tmp", "checkpoint-x.txt",
    }  # fmt: skip
    assert load(tmp_path).progress.step == 4


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format": 2}, "is not a checkpoint that this version of highrank wrote"),
        ({"progress": {"unknown": 1}}, "is damaged"),
        ({"averaging": None, "n_averaged": None, "tensors": 3}, "is damaged"),
        ({"n_averaged": "many"}, r"is damaged \(its n_averaged is not a whole number of at least 0\)"),
        ({"window_rng": 3}, r"is damaged \(its window_rng is not an object\)"),
        ({"progress": 3}, r"is damaged \(its progress is not an object\)"),
        ({"progress": {"epoch": "six"}}, r"is damaged \(its progress\.epoch is not a whole number of at least 0\)"),
        ({"progress": {"epoch": None}}, r"progress\.epoch is not a whole number"),
        ({"progress": {"best_valid": "low"}}, r"progress\.best_valid is not a number or null"),
        ({"progress": {"history": [1.0, "two"]}}, r"progress\.history\[1\] is not a number"),
        ({"progress": {"pieces": [{}]}}, r"progress\.pieces\[0\] lacks epoch"),
    ],
)
def test_a_foreign_checkpoint_is_told(tmp_path, change, sentence):
    save(tmp_path, make())
    path = tmp_path / "checkpoint.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=sentence):
        load(tmp_path)
    if "progress" in change:
        with pytest.raises(UserError, match=sentence):
            load_progress(tmp_path)


def test_what_went_wrong_in_training_is_no_damage(tmp_path):
    saved = make()
    saved.progress.history, saved.progress.loss_sum = [math.inf, math.nan], math.nan
    saved.progress.best_valid = None
    save(tmp_path, saved)
    assert load(tmp_path).progress.history[0] == math.inf
    assert load_progress(tmp_path).best_valid is None


def test_earlier_versions_told_less(tmp_path):
    save(tmp_path, make())
    path = tmp_path / "checkpoint.json"
    data = json.loads(path.read_text())
    del data["progress"]["pieces"], data["progress"]["offsets"], data["short"]
    path.write_text(json.dumps(data))
    assert (load(tmp_path).progress.pieces, load(tmp_path).short) == ([], None)
