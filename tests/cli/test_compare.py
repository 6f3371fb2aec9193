"""`highrank compare` as a user runs it."""

import json
import re

import pytest

from helpers import fails, highrank, settings


@pytest.fixture
def pair(place):
    """Two runs of one epoch on the toy corpus: mos and softmax."""
    for head in ("mos", "softmax"):
        options = settings(f"data.corpus=toy model.head={head} model.hidden_sizes=10,6")
        highrank("train", "ptb-mos", *options, "--out", head, "--max-epochs", 1, cwd=place)
    return place


def test_compare_writes_all_forms_and_prints_the_same_numbers(pair):
    highrank("compare", "mos", "softmax", "--n", 3, "--top", 4, "--out", "out", cwd=pair)
    data = json.loads(highrank("compare", "mos", "softmax", "--n", 3, "--top", 4, "--json", cwd=pair).stdout)
    written = json.loads((pair / "out" / "comparison.json").read_text())
    assert {p.suffix for p in (pair / "out").iterdir()} == {".html", ".json", ".png", ".svg"}
    del data["provenance"], written["provenance"]
    assert data == written
    assert data["runs"] == ["mos", "softmax"]
    assert len(data["a_ahead"]) == 3
    assert len(data["a_ahead"][0]["b"]["top"]) == 4


def test_compare_agrees_with_evaluate(pair):
    data = json.loads(highrank("compare", "mos", "softmax", "--json", cwd=pair).stdout)
    evaluated = json.loads(highrank("evaluate", "mos", "--json", cwd=pair).stdout)
    assert data["a"]["perplexity"] == pytest.approx(evaluated["perplexity"], rel=1e-5)


def test_the_terminal_shows_both_runs_and_components(pair):
    printed = highrank("compare", "mos", "softmax", "--n", 2, cwd=pair).stdout
    data = json.loads(highrank("compare", "mos", "softmax", "--n", 2, "--json", cwd=pair).stdout)
    for side in (data["a"], data["b"]):
        assert side["name"] in printed
        assert f"{side['perplexity']:.2f}" in printed
    assert f"{data['a_ahead'][0]['gain']:+.2f}" in printed
    assert "share" in printed


def test_numbers_only_quotes_no_text(pair, toy_folder):
    whole = json.loads(highrank("compare", "mos", "softmax", "--n", 3, "--json", cwd=pair).stdout)
    printed = highrank("compare", "mos", "softmax", "--n", 3, "--numbers-only", cwd=pair).stdout
    numbers = json.loads(printed)
    for key in ("tokens", "a", "b", "overall", "by_frequency", "by_pair", "runs"):
        assert numbers[key] == whole[key]
    values = set(re.findall(r'"(\w+)"(?!:)', printed))
    assert values.isdisjoint((toy_folder / "train.txt").read_text().split())


def test_split_and_phrase(pair):
    options = ("--split", "valid", "--contains", "small cat", "--json")
    data = json.loads(highrank("compare", "mos", "softmax", *options, cwd=pair).stdout)
    assert (data["split"], data["contains"]) == ("valid", "small cat")
    assert data["overall"]["steps"] < data["tokens"]
    numbers = json.loads(highrank("compare", "mos", "softmax", *options, "--numbers-only", cwd=pair).stdout)
    assert numbers["contains"] == "small cat"  # without it, the numbers look like those of all steps


def test_characters(pair):
    for head in ("mos", "moc"):
        options = settings(f"data.corpus=toy data.level=char model.head={head}")
        highrank("train", "ptb-mos", *options, "--out", f"char-{head}", "--max-epochs", 1, cwd=pair)
    data = json.loads(highrank("compare", "char-mos", "char-moc", "--contains", "bird ", "--json", cwd=pair).stdout)
    assert data["level"] == "char"
    fails("compare", "mos", "char-mos", cwd=pair)


@pytest.mark.parametrize(
    "arguments",
    [
        ["mos", "nothing"],
        ["mos", "toy"],
        ["mos", "./mos"],
        ["mos", "softmax", "--split", "tset"],
        ["mos", "softmax", "--contains", "birdd"],
        ["mos", "softmax", "--contains", ""],
        ["mos", "softmax", "--contains", "runs runs runs"],
        ["mos", "softmax", "--n", "0"],
        ["mos", "softmax", "--out", "toy/test.txt"],
    ],
    ids=" ".join,
)
def test_mistakes_get_one_sentence(pair, arguments):
    fails("compare", *arguments, cwd=pair)
