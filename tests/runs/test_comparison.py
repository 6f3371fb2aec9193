"""Comparing two run folders."""

import dataclasses
import json
import shutil

import pytest

import highrank
from helpers import CPU, TOY, changed
from highrank.analysis.compare import compare
from highrank.analysis.reading import read
from highrank.errors import UserError
from highrank.runs.comparison import compare_runs
from highrank.runs.folder import Run
from highrank.runs.training import train_run


@pytest.fixture
def folders(toy_corpus, toy_folder, tmp_path):
    data = dataclasses.replace(TOY.data, corpus=str(toy_folder))
    for head in ("mos", "softmax"):
        recipe = dataclasses.replace(changed(model={"head": head, "hidden_sizes": (6,)}, max_epochs=1), data=data)
        train_run(recipe, toy_corpus, Run(tmp_path / head), CPU)
    return tmp_path / "mos", tmp_path / "softmax"


@pytest.mark.parametrize("split", ["valid", "test"])
def test_runs_are_compared_by_their_best_models(folders, toy_corpus, split):
    models = [highrank.load(folder).model for folder in folders]
    comparison = compare_runs(*folders, split=split, n=3)
    readings = tuple(read(model, toy_corpus.ids(split)) for model in models)
    assert comparison == compare(*models, toy_corpus, readings, split, names=("mos", "softmax"), n=3)


def test_runs_of_one_name_are_named_by_their_paths(folders):
    twin = folders[0].parent / "elsewhere" / "mos"
    shutil.copytree(folders[1], twin)
    comparison = compare_runs(folders[0], twin, n=1)
    assert (comparison.a.name, comparison.b.name) == (str(folders[0]), str(twin))


def test_a_run_cannot_be_compared_with_itself(folders):
    with pytest.raises(UserError):
        compare_runs(folders[0], folders[0] / ".")


def test_runs_with_different_vocabularies_cannot_be_compared(folders):
    file = folders[1] / "vocabulary.json"
    file.write_text(json.dumps(json.loads(file.read_text())[::-1]))
    with pytest.raises(UserError):
        compare_runs(*folders)


def test_runs_on_different_texts_cannot_be_compared(folders):
    file = folders[1] / "run.json"
    info = json.loads(file.read_text())
    file.write_text(json.dumps(info | {"corpus_fingerprint": "other"}))
    with pytest.raises(UserError, match="softmax"):
        compare_runs(*folders)
