import json

import pytest

from helpers import fails, highrank, settings, write_toy_corpus

HEADS = ("softmax", "moc", "mos")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with three small runs on one toy corpus."""
    folder = tmp_path_factory.mktemp("analyze")
    write_toy_corpus(folder / "toy")
    for head in HEADS:
        extra = f"data.corpus=toy model.head={head} model.hidden_sizes=10,6"
        highrank("train", "ptb-mos", *settings(extra), "--out", head, "--max-epochs", 1, cwd=folder)
    return folder


def analyze_json(*arguments, cwd):
    return json.loads(highrank("analyze", *arguments, "--json", cwd=cwd).stdout)


def test_analyze_writes_the_record_and_the_figure(place):
    done = highrank("analyze", *HEADS, "--out", "result", cwd=place)
    for name in ("analysis.json", "spectrum.png", "spectrum.svg"):
        assert (place / "result" / name).exists()
        assert f"result/{name}" in done.stdout
    record = json.loads((place / "result" / "analysis.json").read_text())
    assert [model["head"] for model in record["models"]] == ["softmax", "moc", "mos"]
    assert record["provenance"]["torch"]


def test_options_reach_the_analysis(place):
    arguments = ("mos", "--split", "valid", "--tokens", 60, "--contexts", 50, "--seed", 3)
    record = analyze_json(*arguments, cwd=place)
    assert (record["split"], record["tokens"], record["seed"]) == ("valid", 60, 3)
    assert record["models"][0]["kld"]["contexts"] == 50


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["mos", "--split", "train"],
        ["mos", "--tokens", "many"],
        ["mos", "--tokens", "1"],
        ["mos", "--out", "toy/test.txt"],
        [],
    ],
    ids=" ".join,
)
def test_mistakes_end_with_one_sentence(place, arguments):
    fails("analyze", *arguments, cwd=place)
