"""Runs that survive their machine: export, import, and go on."""

import json
import statistics
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

import highrank
from helpers import CPU, LEARNER, changed, epochs
from highrank.errors import UserError
from highrank.evaluation.perplexity import evaluate
from highrank.files import read_tensors
from highrank.runs import checkpoint as checkpoints
from highrank.runs.export import _shards, export_run, import_run
from highrank.runs.folder import Run, load, run_corpus
from highrank.training.loop import train

LONG = changed(nonmono=1, max_epochs=6)


@pytest.fixture
def run(toy_corpus, tmp_path):
    run = Run(tmp_path / "run")
    train(LONG, toy_corpus, run, CPU, max_epochs=4)
    assert checkpoints.load(run.folder).averages is not None
    return run


def test_float32_loses_nothing(run, toy_corpus, tmp_path):
    export_run(run, tmp_path / "export", torch.float32, 10**6, averages_only=False)
    copy = Run(tmp_path / "copy")
    import_run(tmp_path / "export", copy)
    for one in (run, copy):
        assert train(LONG, toy_corpus, one, CPU, resume=True) == "finished"
    a, b = checkpoints.load(run.folder), checkpoints.load(copy.folder)
    assert all(torch.equal(a.weights[k], b.weights[k]) for k in a.weights)
    assert all(torch.equal(a.averages[k], b.averages[k]) for k in a.averages)


@pytest.mark.parametrize("averages_only", [False, True])
def test_a_half_precision_export_ends_within_noise(run, toy_corpus, tmp_path, averages_only):
    export_run(run, tmp_path / "export", torch.float16, 10**6, averages_only)
    copy = Run(tmp_path / "copy")
    import_run(tmp_path / "export", copy)
    valid = toy_corpus.splits["valid"]
    original = highrank.load(run.folder).model  # the best weights travel, whichever epoch they are of
    assert evaluate(highrank.load(copy.folder).model, valid).nll == pytest.approx(
        evaluate(original, valid).nll, rel=1e-3
    )
    for one in (run, copy):
        train(LONG, toy_corpus, one, CPU, resume=True)
    assert epochs(copy)[-1]["valid_nll"] == pytest.approx(epochs(run)[-1]["valid_nll"], rel=0.05)


@pytest.mark.parametrize("averages_only", [False, True])
def test_the_best_weights_travel_from_the_middle_of_an_epoch(run, toy_corpus, tmp_path, averages_only):
    """Where the weights and their averages have gone on. Without those the epoch begins again, and new averages."""
    asked = iter([False, True])
    assert train(LONG, toy_corpus, run, CPU, resume=True, should_stop=lambda: next(asked)) == "interrupted"
    saved, copy = checkpoints.load(run.folder), Run(tmp_path / "copy")
    assert saved.progress.row > 0
    assert saved.n_averaged > 0
    saved.progress.best_epoch = saved.progress.epoch  # at its end they were the weights of the run
    checkpoints.save(run.folder, saved)
    export_run(run, tmp_path / "export", torch.float32, 10**6, averages_only)
    import_run(tmp_path / "export", copy)
    ours, theirs = (read_tensors(one.model_file, "model") for one in (copy, run))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    found = checkpoints.load(copy.folder)
    assert found.progress.row == (0 if averages_only else saved.progress.row)
    assert found.n_averaged == (0 if averages_only else saved.n_averaged)


def test_a_run_cut_in_two_ends_within_the_noise_between_seeds(toy_corpus, tmp_path):
    """Half precision must cost less than the choice of a seed does, for the weights that are kept at the end."""
    uncut, cut = [], []
    for seed in (1, 2, 3):
        recipe = changed(LEARNER, seed=seed, nonmono=1, max_epochs=8)
        run, copy = Run(tmp_path / f"run-{seed}"), Run(tmp_path / f"copy-{seed}")
        train(recipe, toy_corpus, run, CPU, max_epochs=4)
        export_run(run, tmp_path / f"export-{seed}", torch.float16, 10**6, averages_only=False)
        import_run(tmp_path / f"export-{seed}", copy)
        for one, results in ((run, uncut), (copy, cut)):
            assert train(recipe, toy_corpus, one, CPU, resume=True) == "finished"
            assert [e["epoch"] for e in epochs(one)] == list(range(1, 9))
            results.append(evaluate(highrank.load(one.folder).model, toy_corpus.splits["test"]).nll)
    lost = [abs(a - b) for a, b in zip(cut, uncut, strict=True)]
    assert max(lost) > 0  # it is another run
    assert max(lost) < statistics.stdev(uncut)


def test_averages_that_start_anew_are_not_held_against_the_old_ones(run, toy_corpus, tmp_path):
    """They are worse at first, which would end the stage by its patience."""
    saved = checkpoints.load(run.folder)
    saved.progress.history = [0.0] * 50  # nothing beats these
    checkpoints.save(run.folder, saved)
    ended = {}
    for averages_only in (False, True):
        copy = Run(tmp_path / f"copy-{averages_only}")
        export_run(run, tmp_path / f"export-{averages_only}", torch.float16, 10**6, averages_only)
        import_run(tmp_path / f"export-{averages_only}", copy)
        train(LONG, toy_corpus, copy, CPU, resume=True, max_epochs=saved.progress.epoch + 1)
        ended[averages_only] = checkpoints.load_progress(copy.folder).finished
    assert ended == {False: True, True: False}


def test_shards_are_bounded_and_complete():
    tensors = {"a": torch.arange(40_000.0).view(100, 400), "b": torch.ones(3), "c": torch.arange(90_000).view(-1, 3)}
    shards = list(_shards(tensors, 200_000))
    assert len(shards) > 3
    assert max(len(save(shard)) for shard in shards) <= 200_000  # as files, with their headers
    for name, tensor in tensors.items():
        assert torch.equal(torch.cat([s[name] for s in shards if name in s]), tensor)
    with pytest.raises(UserError, match="one row of a alone takes 1,600 bytes: allow larger shards"):
        next(_shards(tensors, 66_000))


def test_mistakes(run, tmp_path):
    export_run(run, tmp_path / "export", torch.float16, 10**6, averages_only=True)
    with pytest.raises(UserError, match="is not empty"):
        export_run(run, tmp_path / "export", torch.float16, 10**6, averages_only=True)
    run.model_file.rename(tmp_path / "model")
    with pytest.raises(UserError, match="has no trained weights yet"):
        load(run.folder)
    (tmp_path / "model").rename(run.model_file)
    with pytest.raises(UserError, match="there is no run at"):
        export_run(Run(tmp_path / "nothing"), tmp_path / "another", torch.float16, 10**6, averages_only=True)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="is a file: choose a folder"):
        export_run(run, tmp_path / "file", torch.float16, 10**6, averages_only=True)
    with pytest.raises(UserError, match="is a file: choose a folder"):
        import_run(tmp_path / "export", Run(tmp_path / "file"))
    with pytest.raises(UserError, match="made by 'highrank export'"):
        import_run(tmp_path / "file", Run(tmp_path / "new"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    with pytest.raises(UserError, match="mine is not empty"):
        import_run(tmp_path / "export", Run(tmp_path / "mine"))
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
    with pytest.raises(UserError, match="already holds a run"):
        import_run(tmp_path / "export", run)
    shard = tmp_path / "export" / "shard-00001.safetensors"
    kept = shard.read_bytes()
    shard.write_bytes(kept[:-10])
    with pytest.raises(UserError, match="is damaged or not a safetensors file"):
        import_run(tmp_path / "export", Run(tmp_path / "new"))
    shard.write_bytes(kept[:-10] + bytes(255 - byte for byte in kept[-10:]))  # other numbers, in as good a file
    with pytest.raises(UserError, match=r"shard-00001\.safetensors is not as it was written: copy it again"):
        import_run(tmp_path / "export", Run(tmp_path / "new"))
    shard.write_bytes(kept)
    with pytest.raises(UserError, match="is a run, not an export: write one of it with 'highrank export"):
        import_run(run.folder, Run(tmp_path / "new"))
    index = tmp_path / "export" / "index.json"
    data = json.loads(index.read_text())
    del data["tensors"]["weights/head.bias"]
    index.write_text(json.dumps(data))
    with pytest.raises(UserError, match=r"lacks tensor head\.bias"):
        import_run(tmp_path / "export", Run(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"progress": {"epoch": "six"}}, r"its progress\.epoch is not a whole number"),
        ({"averages_only": "yes"}, "its averages_only is not true or false"),
        ({"tensors": ["weights"]}, "its tensors is not an object"),
        ({"progress": {"step": 1, "what": 2}}, "its progress holds what, which this version of highrank does not know"),
        ({"sha256": {"shard-00009.safetensors": "0"}}, r"No such file or directory: .*shard-00009\.safetensors"),
    ],
)
def test_an_index_that_was_changed_is_told_before_anything_is_made_of_it(run, tmp_path, change, said):
    export_run(run, tmp_path / "export", torch.float16, 10**6, averages_only=False)
    index = tmp_path / "export" / "index.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | change))
    with pytest.raises(UserError, match=rf"is damaged or incomplete \(.*{said}.*\): copy it again"):
        import_run(tmp_path / "export", Run(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_weights_that_a_dtype_cannot_hold_are_refused(run, tmp_path):
    """They would be infinite on the other side, without a word."""
    saved = checkpoints.load(run.folder)
    saved.weights["head.bias"][0] = -70_000.0
    checkpoints.save(run.folder, saved)
    with pytest.raises(UserError, match=r"head\.bias holds 7e\+04, more than the 65,504 that float16 can: export with"):
        export_run(run, tmp_path / "export", torch.float16, 10**6, averages_only=False)
    assert not (tmp_path / "export").exists()
    export_run(run, tmp_path / "export", torch.bfloat16, 10**6, averages_only=False)


def test_a_run_that_lost_its_best_weights_does_not_export_others_for_them(run, tmp_path):
    run.model_file.unlink()
    with pytest.raises(UserError, match=r"there is no trained model at .*model\.safetensors"):
        export_run(run, tmp_path / "export", torch.float16, 10**6, averages_only=True)
    assert not (tmp_path / "export").exists()


@pytest.mark.parametrize(
    ("curve", "said"),
    [
        (b"\xff\xfe\n", r"epochs\.jsonl is damaged \(.*codec"),
        (b"hello\n", r"epochs\.jsonl is damaged \(Expecting value"),
        (b"[1]\n", r"epochs\.jsonl is damaged \(line 1: it is not an object"),
        (
            b'{"kind": "epoch", "epoch": 1}\n',
            r"epochs\.jsonl is damaged \(line 1: it lacks averaged, seconds, train_ppl",
        ),
    ],
)
def test_a_damaged_curve_is_told_before_anything_is_made_of_it(run, tmp_path, curve, said):
    """Not after the training that follows, when it is added to."""
    export_run(run, tmp_path / "export", torch.float16, 10**6, averages_only=False)
    (tmp_path / "export" / "epochs.jsonl").write_bytes(curve)
    with pytest.raises(UserError, match=said):
        import_run(tmp_path / "export", Run(tmp_path / "new"))
    assert not (tmp_path / "new").exists()
    run.metrics_file.write_bytes(curve)
    with pytest.raises(UserError, match=said.replace("epochs", "metrics")):
        export_run(run, tmp_path / "again", torch.float16, 10**6, averages_only=False)


def test_an_import_lacks_no_weights(run, tmp_path):
    export_run(run, tmp_path / "export", torch.float16, 10**6, averages_only=False)
    index = tmp_path / "export" / "index.json"
    told = json.loads(index.read_text())
    told["tensors"] = {name: where for name, where in told["tensors"].items() if not name.startswith("weights/")}
    index.write_text(json.dumps(told | {"sha256": None}))
    with pytest.raises(UserError, match="belongs to another model: it lacks tensor"):
        import_run(tmp_path / "export", Run(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_an_export_is_no_run_to_go_on_with(run, toy_corpus, tmp_path):
    """It has all that a run has but a checkpoint: training in it would begin from nothing, without a word."""
    folder = tmp_path / "export"
    export_run(run, folder, torch.float16, 10**6, averages_only=False)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(UserError, match="is an export, not a run: make one of it with 'highrank import"):
        train(LONG, toy_corpus, Run(folder), CPU, resume=True)
    with pytest.raises(UserError, match="is an export, not a run"):
        export_run(Run(folder), tmp_path / "another", torch.float16, 10**6, averages_only=False)
    with pytest.raises(UserError, match="is an export, not a run"):
        highrank.load(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_exports_without_checksums_are_read(run, tmp_path):
    export_run(run, tmp_path / "export", torch.float16, 10**6, averages_only=False)
    index = tmp_path / "export" / "index.json"
    told = json.loads(index.read_text())
    for i, without in enumerate(({k: v for k, v in told.items() if k != "sha256"}, told | {"sha256": None})):
        index.write_text(json.dumps(without))
        import_run(tmp_path / "export", Run(tmp_path / f"new-{i}"))


@pytest.mark.parametrize("averages_only", [False, True])
def test_dropout_goes_on_with_masks_of_its_own(run, tmp_path, averages_only):
    """Every piece of a run would draw those of the first one again."""
    saved = checkpoints.load(run.folder)
    saved.cuda_rng = torch.arange(16, dtype=torch.uint8)
    checkpoints.save(run.folder, saved)
    export_run(run, tmp_path / "export", torch.float16, 10**6, averages_only)
    import_run(tmp_path / "export", Run(tmp_path / "copy"))
    found = checkpoints.load(tmp_path / "copy")
    assert found.torch_rng.equal(saved.torch_rng)
    assert found.cuda_rng.equal(saved.cuda_rng)


def test_a_run_whose_data_folder_is_not_here_looks_where_any_other_would(run, toy_corpus, tmp_path, monkeypatch):
    """A run carried to another machine remembers a folder of the old one."""
    asked = []

    def found(name, data_dir, level):
        asked.append(data_dir)
        return toy_corpus

    monkeypatch.setattr("highrank.runs.folder.load_corpus", found)
    info = run.folder / "run.json"
    for folder in (tmp_path / "gone", tmp_path):
        info.write_text(json.dumps(json.loads(info.read_text()) | {"data_dir": str(folder)}))
        run_corpus(run.folder, None)
    run_corpus(run.folder, tmp_path / "told")
    assert asked == [None, tmp_path, tmp_path / "told"]


def fail(sentence):
    raise UserError(sentence)


def test_half_an_import_is_no_run(run, tmp_path, monkeypatch):
    """Resuming it would quietly train from scratch."""
    export_run(run, tmp_path / "export", torch.float16, 10**6, averages_only=True)
    copy = Run(tmp_path / "copy")
    with monkeypatch.context() as full:
        full.setattr("highrank.runs.checkpoint.write_json", lambda *_: fail("the disk is full"))
        with pytest.raises(UserError, match="the disk is full"):
            import_run(tmp_path / "export", copy)
    assert {path.name for path in tmp_path.iterdir()} == {"toy", "run", "export"}
    copy.folder.mkdir()  # empty: as good as none
    import_run(tmp_path / "export", copy)
    assert copy.exists()


@pytest.mark.parametrize("absolute", [False, True])
def test_the_folder_one_is_in_cannot_be_made_anew(run, tmp_path, monkeypatch, absolute):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    out = tmp_path / "empty" if absolute else Path()
    with pytest.raises(UserError, match="is the folder you are in: choose a new one below it with --out"):
        export_run(run, out, torch.float16, 10**6, averages_only=True)
    export_run(run, Path("export"), torch.float16, 10**6, averages_only=True)
    import_run(Path("export"), Run(Path("run")))


def test_half_an_export_is_none(run, tmp_path, monkeypatch):
    with monkeypatch.context() as full:
        full.setattr("highrank.runs.export.write_text", lambda *_: fail("no space"))
        with pytest.raises(UserError, match="no space"):
            export_run(run, tmp_path / "export", torch.float16, 10**6, averages_only=True)
    assert {path.name for path in tmp_path.iterdir()} == {"toy", "run"}
    files = export_run(run, tmp_path / "export", torch.float16, 10**6, averages_only=True)
    assert {*files} == {*(tmp_path / "export").iterdir()}
