"""`highrank compare` as a user meets it."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import pytest
import torch

from helpers import fails, highrank, save_weights
from highrank.cli.compare import _end
from highrank.data.corpus import load_corpus
from highrank.models import build_model
from highrank.recipes import RECIPES
from highrank.runs.folder import Run


def make_run(folder: Path, head: str, corpus: str, seed: int, level: str = "word") -> None:
    """A run of random weights: what is compared here is two models, not two good ones."""
    recipe = RECIPES["ptb-mos"]
    model = dataclasses.replace(recipe.model, head=head, embed_dim=6, hidden_sizes=(9, 6), n_components=3)
    data = dataclasses.replace(recipe.data, corpus=corpus, level=level)
    recipe = dataclasses.replace(recipe, model=model, data=data)
    text = load_corpus(corpus, None, level)
    run = Run(folder)
    run.create(recipe, text, torch.device("cpu"), None)
    torch.manual_seed(seed)
    built = build_model(recipe.model, text.vocab_size)
    save_weights(run, {name: 5 * p for name, p in built.named_parameters()})


@pytest.fixture
def place(tmp_path, toy_folder):
    make_run(tmp_path / "mos", "mos", str(toy_folder), 1)
    make_run(tmp_path / "softmax", "softmax", str(toy_folder), 2)
    return tmp_path


def test_compare(place):
    done = highrank("compare", "mos", "softmax", "--n", 3, "--top", 4, "--out", "out", cwd=place)
    assert "Where mos is furthest ahead" in done.stdout
    assert "Where softmax is furthest ahead" in done.stdout
    assert "How often the word was seen in training" in done.stdout
    assert "share" in done.stdout
    assert "Written to:\n  out/comparison.html\n  out/comparison.md\n  out/comparison.json\n" in done.stdout
    data = json.loads(highrank("compare", "mos", "softmax", "--n", 3, "--top", 4, "--json", cwd=place).stdout)
    written = json.loads((place / "out" / "comparison.json").read_text())
    assert data["runs"] == ["mos", "softmax"]
    assert data["provenance"]["torch"]
    assert {k: v for k, v in data.items() if k != "provenance"} == {
        k: v for k, v in written.items() if k != "provenance"
    }
    assert len(data["a_ahead"]) == 3
    assert len(data["a_ahead"][0]["b"]["top"]) == 4
    evaluated = json.loads(highrank("evaluate", "mos", "--json", cwd=place).stdout)
    assert data["a"]["perplexity"] == pytest.approx(evaluated["perplexity"], rel=1e-5)


def test_numbers_only(place, toy_folder):
    whole = json.loads(highrank("compare", "mos", "softmax", "--n", 3, "--json", cwd=place).stdout)
    printed = highrank("compare", "mos", "softmax", "--n", 3, "--json", "--numbers-only", cwd=place).stdout
    numbers = json.loads(printed)
    assert {"a_ahead", "b_ahead", "by_previous"}.isdisjoint(numbers)
    for key in ("tokens", "a", "b", "overall", "by_frequency", "by_pair", "runs"):
        assert numbers[key] == whole[key]
    values = set(re.findall(r'"(\w+)"(?!:)', printed))
    assert values.isdisjoint((toy_folder / "train.txt").read_text().split())
    assert "--numbers-only belongs to --json" in fails("compare", "mos", "softmax", "--numbers-only", cwd=place)


def test_options(place):
    data = json.loads(
        highrank(
            "compare", "mos", "softmax", "--split", "valid", "--contains", "small cat", "--batch-size", 4, "--json",
            cwd=place,
        ).stdout
    )  # fmt: skip
    assert (data["split"], data["contains"], data["columns"]) == ("valid", "small cat", 4)
    assert data["overall"]["steps"] < data["tokens"]
    done = highrank("compare", "mos", "softmax", "--json", "--out", "out", cwd=place)
    assert json.loads(done.stdout)
    assert "Written to:\n  out/comparison.html" in done.stderr


def test_runs_of_one_name_are_told_apart(place):
    shutil.copytree(place / "softmax", place / "elsewhere" / "mos")
    data = json.loads(highrank("compare", "mos", "elsewhere/mos", "--json", cwd=place).stdout)
    assert (data["a"]["name"], data["b"]["name"]) == ("mos", "elsewhere/mos")


def test_characters(place, toy_folder):
    for seed, head in enumerate(("mos", "moc")):
        make_run(place / f"char-{head}", head, str(toy_folder), seed, level="char")
    done = highrank("compare", "char-mos", "char-moc", "--contains", "bird ", "--out", "out", cwd=place)
    assert "in their context" in done.stdout
    sentence = fails("compare", "mos", "char-mos", cwd=place)
    assert "different versions of" in sentence
    assert "or at different levels" in sentence


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["mos", "nothing"], "nothing is not a run"),
        (["mos", "toy"], "toy is not a run"),
        (["mos", "./mos"], "are the same run"),
        (["mos", "softmax", "--split", "tset"], 'no split "tset"'),
        (["mos", "softmax", "--contains", "birdd"], 'did you mean "bird"?'),
        (["mos", "softmax", "--contains", ""], "--contains is empty"),
        (["mos", "softmax", "--contains", "runs runs runs"], "test has no step with"),
        (["mos", "softmax", "--device", "gpu"], 'no device "gpu"'),
        (["mos", "softmax", "--out", "toy/test.txt"], "is a file: choose a folder"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_mistakes_get_one_sentence(place, arguments, sentence):
    assert sentence in fails("compare", *arguments, cwd=place)


@pytest.mark.parametrize("option", ["--n", "--top", "--batch-size"])
def test_numbers_below_one(place, option):
    assert f"{option} must be a whole number of at least 1" in fails("compare", "mos", "softmax", option, 0, cwd=place)


def test_other_corpora(place):
    make_run(place / "pydoc", "softmax", "pydoc", 3)
    assert "compare runs over the same text" in fails("compare", "mos", "pydoc", cwd=place)


def test_other_vocabularies(place):
    file = place / "softmax" / "vocabulary.json"
    file.write_text(json.dumps(json.loads(file.read_text())[::-1]))
    assert "have different vocabularies" in fails("compare", "mos", "softmax", cwd=place)


def test_a_corpus_that_is_gone_or_changed(place):
    (place / "toy" / "test.txt").write_text("the cat runs\n" * 40)
    assert "has changed since mos was trained on it" in fails("compare", "mos", "softmax", cwd=place)
    shutil.rmtree(place / "toy")
    assert "mos was trained on is not at" in fails("compare", "mos", "softmax", cwd=place)


def test_a_damaged_model(place):
    Run(place / "softmax").model_file.write_bytes(b"not a model")
    assert "softmax/model-1.safetensors is damaged" in fails("compare", "mos", "softmax", cwd=place)


def test_a_long_context_begins_with_a_whole_word():
    assert _end("cut <eos> " + "x" * 92 + " end", "word") == "… " + "x" * 92 + " end"  # not "os> xx..."
    assert _end("x" * 120, "char") == "…" + "x" * 100
    assert _end("short text", "word") == "short text"
