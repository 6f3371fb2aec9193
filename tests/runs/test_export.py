"""Exports: carry a run to another machine and continue there."""

import dataclasses
import json
import statistics

import pytest
import safetensors.torch
import torch

import highrank
from helpers import CPU, LEARNER, changed, epochs, weights
from highrank.errors import UserError
from highrank.evaluation.perplexity import evaluate
from highrank.files import read_tensors
from highrank.runs import checkpoint as checkpoints
from highrank.runs.corpora import run_corpus
from highrank.runs.export import export_run, import_run
from highrank.runs.folder import Run
from highrank.runs.training import train_run
from highrank.training.checkpoint import under

LONG = changed(nonmono=1, max_epochs=6)
BOTH = {"partial_shuffle": True, "averaging": "two-tailed"}


@pytest.fixture
def run(toy_corpus, tmp_path):
    run = Run(tmp_path / "run")
    train_run(LONG, toy_corpus, run, CPU, max_epochs=4)
    assert under("averages/", checkpoints.load(run.folder).tensors)
    return run


def carry(run, copy, dtype=torch.float32, averages_only=False):
    """Export `run`, import it as `copy`, and return the copy."""
    folder = copy.with_name(copy.name + "-export")
    export_run(run, folder, dtype, 10**6, averages_only)
    import_run(folder, Run(copy))
    return Run(copy)


def edit(run, tensors=None, **changes):
    """Change tensors and values of the state in the last checkpoint of a run."""
    file = checkpoints.read(run.folder)
    checkpoint = checkpoints.load(run.folder)
    checkpoint.tensors |= tensors or {}
    checkpoint.state = dataclasses.replace(checkpoint.state, **changes)
    checkpoints.save(run.folder, checkpoint, file.pieces, file.metrics_bytes)


# --- what continues -------------------------------------------------------------------------------------------------


def test_a_float32_export_continues_bit_for_bit(run, toy_corpus, tmp_path):
    copy = carry(run, tmp_path / "copy")
    for one in (run, copy):
        assert train_run(LONG, toy_corpus, one, CPU, resume=True) == "finished"
    assert all(torch.equal(a, b) for a, b in zip(weights(run).values(), weights(copy).values(), strict=True))
    assert [line["epoch"] for line in epochs(copy)] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("averages_only", [False, True])
def test_a_half_precision_export_keeps_the_best_weights(run, toy_corpus, tmp_path, averages_only):
    copy = carry(run, tmp_path / "copy", torch.float16, averages_only)
    losses = [evaluate(highrank.load(one.folder).model, toy_corpus.splits["valid"]).nll for one in (run, copy)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    for one in (run, copy):
        train_run(LONG, toy_corpus, one, CPU, resume=True)
    assert epochs(copy)[-1]["valid_nll"] == pytest.approx(epochs(run)[-1]["valid_nll"], rel=0.05)


def test_a_half_precision_export_costs_less_than_a_change_of_seed(toy_corpus, tmp_path):
    whole, carried = [], []
    for seed in (1, 2, 3):
        recipe = changed(LEARNER, seed=seed, nonmono=1, max_epochs=8)
        run = Run(tmp_path / f"run-{seed}")
        train_run(recipe, toy_corpus, run, CPU, max_epochs=4)
        copy = carry(run, tmp_path / f"copy-{seed}", torch.float16)
        for one, losses in ((run, whole), (copy, carried)):
            assert train_run(recipe, toy_corpus, one, CPU, resume=True) == "finished"
            losses.append(evaluate(highrank.load(one.folder).model, toy_corpus.splits["test"]).nll)
    differences = [abs(a - b) for a, b in zip(whole, carried, strict=True)]
    assert 0 < max(differences) < statistics.stdev(whole)


@pytest.mark.parametrize("averages_only", [False, True])
def test_an_export_within_an_epoch(run, toy_corpus, tmp_path, averages_only):
    """The best weights are those of the run. With averages only, the epoch and the averages start again."""
    answers = iter([False, True])
    assert train_run(LONG, toy_corpus, run, CPU, resume=True, should_stop=lambda: next(answers)) == "interrupted"
    copy = carry(run, tmp_path / "copy", averages_only=averages_only)
    ours, theirs = (read_tensors(one.model_file, "model") for one in (run, copy))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    before, after = checkpoints.load(run.folder), checkpoints.load(copy.folder)
    assert before.state.row > 0
    assert after.state.row == (0 if averages_only else before.state.row)
    assert before.tensors["n_averaged"] > 0
    assert ("n_averaged" in after.tensors) == (not averages_only)


def test_an_export_of_averages_only_within_a_short_epoch_continues_the_pass_with_a_new_epoch(toy_corpus, tmp_path):
    recipe = changed(nonmono=1, updates_per_epoch=5, max_epochs=50)
    run = Run(tmp_path / "run")
    train_run(recipe, toy_corpus, run, CPU, max_epochs=1)
    answers = iter([False, True])
    train_run(recipe, toy_corpus, run, CPU, resume=True, should_stop=lambda: next(answers))
    copy = carry(run, tmp_path / "copy", averages_only=True)
    before, after = checkpoints.read(run.folder).state, checkpoints.read(copy.folder).state
    assert (before.step, before.epoch_updates) == (7, 2)
    assert after.row == before.row > 0
    train_run(recipe, toy_corpus, copy, CPU, resume=True, max_epochs=2)
    assert checkpoints.read(copy.folder).state.step == 7 + 5


def test_new_averages_are_not_compared_with_the_old_ones(run, toy_corpus, tmp_path):
    """New averages are worse at first, which would end the stage by its patience."""
    edit(run, history=[0.0] * 50)
    finished = {}
    for averages_only in (False, True):
        copy = carry(run, tmp_path / f"copy-{averages_only}", torch.float16, averages_only)
        train_run(LONG, toy_corpus, copy, CPU, resume=True, max_epochs=5)
        finished[averages_only] = checkpoints.read(copy.folder).state.finished
    assert finished == {False: True, True: False}


@pytest.mark.parametrize("averages_only", [False, True])
def test_the_random_generators_continue(run, tmp_path, averages_only):
    """Otherwise every piece of a run would draw the dropout masks of the first."""
    edit(run, {"rng/cuda": torch.arange(16, dtype=torch.uint8)})
    copy = carry(run, tmp_path / "copy", torch.float16, averages_only)
    before, after = checkpoints.load(run.folder), checkpoints.load(copy.folder)
    for name in ("rng/torch", "rng/cuda"):
        assert torch.equal(before.tensors[name], after.tensors[name])
    assert before.state.window_rng == after.state.window_rng


@pytest.mark.parametrize("pause", [3, 5])
def test_an_export_holds_both_averages_of_two_tailed_averaging(toy_corpus, tmp_path, pause):
    """After three epochs the weights themselves are best, after five an average is."""
    recipe = changed(LEARNER, **BOTH)
    run = Run(tmp_path / "run")
    train_run(recipe, toy_corpus, run, CPU, max_epochs=pause)
    assert checkpoints.load(run.folder).tensors["long_is_best"] == (pause == 5)
    copy = carry(run, tmp_path / "copy")
    for one in (run, copy):
        train_run(recipe, toy_corpus, one, CPU, resume=True, max_epochs=pause + 1)
    assert all(torch.equal(a, b) for a, b in zip(weights(run).values(), weights(copy).values(), strict=True))


def test_an_export_of_averages_only_starts_new_two_tailed_averages(toy_corpus, tmp_path):
    recipe = changed(LEARNER, **BOTH)
    run = Run(tmp_path / "run")
    train_run(recipe, toy_corpus, run, CPU, max_epochs=6)
    copy = carry(run, tmp_path / "copy", averages_only=True)
    assert not under("short/", checkpoints.load(copy.folder).tensors)
    train_run(recipe, toy_corpus, copy, CPU, resume=True, max_epochs=7)
    *_, before, last = epochs(copy)
    assert last["average_length"] in (1, last["step"] - before["step"])


# --- files ----------------------------------------------------------------------------------------------------------


def test_shards_are_bounded_and_form_one_safetensors_file(run, tmp_path):
    files = export_run(run, tmp_path / "export", torch.float16, 1000, averages_only=False)
    shards = [file for file in files if file.suffix == ".bin"]
    assert len(shards) > 3
    assert max(shard.stat().st_size for shard in shards) == 1000
    tensors = safetensors.torch.load(b"".join(shard.read_bytes() for shard in shards))
    assert {name.split("/")[0] for name in tensors} == {"weights", "averages", "n_averaged", "best", "hidden", "rng"}
    assert {*files} == {*(tmp_path / "export").iterdir()}


def test_averages_only_is_the_smallest_export(run, tmp_path):
    sizes = [
        sum(file.stat().st_size for file in export_run(run, tmp_path / name, torch.float16, 10**6, only))
        for name, only in (("full", False), ("averages", True))
    ]
    assert sizes[1] < sizes[0]


def test_the_last_piece_records_the_export(run, tmp_path):
    copy = carry(run, tmp_path / "copy", torch.float16, averages_only=True)
    (piece,) = checkpoints.read(copy.folder).pieces
    assert (piece.exported.dtype, piece.exported.averages_only) == ("float16", True)
    assert checkpoints.read(run.folder).pieces[0].exported is None


@pytest.mark.parametrize("damage", ["cut", "changed", "missing"])
def test_damaged_shards_are_an_error(run, tmp_path, damage):
    export_run(run, tmp_path / "export", torch.float16, 1000, averages_only=True)
    shard = tmp_path / "export" / "shard-00002.bin"
    data = shard.read_bytes()
    if damage == "missing":
        shard.unlink()
    else:
        shard.write_bytes(data[:-10] + (b"" if damage == "cut" else bytes(255 - byte for byte in data[-10:])))
    with pytest.raises(UserError, match="export"):
        import_run(tmp_path / "export", Run(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_a_damaged_index_is_an_error_that_names_the_key(run, tmp_path):
    export_run(run, tmp_path / "export", torch.float16, 10**6, averages_only=False)
    index = tmp_path / "export" / "index.json"
    data = json.loads(index.read_text())
    data["checkpoint"]["state"]["epoch"] = "six"
    index.write_text(json.dumps(data))
    with pytest.raises(UserError, match=r"index\.json.*checkpoint\.state\.epoch"):
        import_run(tmp_path / "export", Run(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_weights_outside_the_range_of_the_dtype_are_an_error(run, tmp_path):
    bias = checkpoints.load(run.folder).tensors["weights/head.bias"]
    bias[0] = -70_000.0
    edit(run, {"weights/head.bias": bias})
    with pytest.raises(UserError, match=r"head\.bias"):
        export_run(run, tmp_path / "export", torch.float16, 10**6, averages_only=False)
    assert not (tmp_path / "export").exists()
    export_run(run, tmp_path / "export", torch.bfloat16, 10**6, averages_only=False)


def test_a_run_without_its_best_weights_cannot_be_exported(run, tmp_path):
    run.model_file.unlink()
    with pytest.raises(UserError, match=r"model-\d\.safetensors"):
        export_run(run, tmp_path / "export", torch.float16, 10**6, averages_only=True)
    assert not (tmp_path / "export").exists()


def test_existing_folders_are_not_overwritten(run, tmp_path):
    export_run(run, tmp_path / "export", torch.float16, 10**6, averages_only=True)
    with pytest.raises(UserError, match="export"):
        export_run(run, tmp_path / "export", torch.float16, 10**6, averages_only=True)
    with pytest.raises(UserError, match="run"):
        import_run(tmp_path / "export", run)


def test_an_export_is_not_a_run(run, toy_corpus, tmp_path):
    """Training in it would silently start from scratch."""
    folder = tmp_path / "export"
    export_run(run, folder, torch.float16, 10**6, averages_only=False)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for attempt in (
        lambda: train_run(LONG, toy_corpus, Run(folder), CPU, resume=True),
        lambda: export_run(Run(folder), tmp_path / "another", torch.float16, 10**6, averages_only=False),
        lambda: highrank.load(folder),
    ):
        with pytest.raises(UserError, match="highrank import"):
            attempt()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_run_is_not_an_export(run, tmp_path):
    with pytest.raises(UserError, match="highrank export"):
        import_run(run.folder, Run(tmp_path / "new"))


def test_a_data_folder_that_does_not_exist_here_is_ignored(run, toy_corpus, tmp_path, monkeypatch):
    """A run from another machine stores a data folder of that machine."""
    asked = []
    find = lambda name, data_dir, level: asked.append(data_dir) or toy_corpus  # noqa: E731
    monkeypatch.setattr("highrank.runs.corpora.load_corpus", find)
    path = run.folder / "run.json"
    for folder in (tmp_path / "gone", tmp_path):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"data_dir": str(folder)}))
        run_corpus(run.folder, None)
    run_corpus(run.folder, tmp_path / "given")
    assert asked == [None, tmp_path, tmp_path / "given"]
