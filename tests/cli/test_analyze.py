import json

import pytest

from helpers import fails, highrank, settings, write_toy_corpus
from hf_models import TEXT, make_hf_model

HEADS = ("softmax", "moc", "mos")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with three small runs on one toy corpus, and two models of transformers."""
    folder = tmp_path_factory.mktemp("analyze")
    write_toy_corpus(folder / "toy")
    for head in HEADS:
        extra = f"data.corpus=toy model.head={head} model.hidden_sizes=10,6"
        highrank("train", "ptb-mos", *settings(extra), "--out", head, "--max-epochs", 1, cwd=folder)
    make_hf_model(folder / "tiny")
    make_hf_model(folder / "capped", "gemma2", final_logit_softcapping=2.0)
    (folder / "text.txt").write_text(TEXT)
    (folder / "binary.txt").write_bytes(b"\xff\xfe\x00")
    (folder / "word.txt").write_text("w1")
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
    arguments = ("mos", "--split", "valid", "--tokens", 60, "--projection", 10, "--contexts", 50, "--seed", 3)
    record = analyze_json(*arguments, cwd=place)
    assert (record["split"], record["tokens"], record["seed"]) == ("valid", 60, 3)
    assert record["models"][0]["projected"] == 10
    assert record["models"][0]["kld"]["contexts"] == 50


def test_a_projected_rank_is_shown_as_a_lower_bound(place):
    assert ">= 10" in highrank("analyze", "mos", "--projection", 10, cwd=place).stdout


def test_a_model_of_transformers(place):
    done = highrank("analyze", "--hf", "tiny", "--text", "text.txt", "--out", "tiny-result", cwd=place)
    assert "61 x 8 matrix" in " ".join(done.stdout.split())
    record = json.loads((place / "tiny-result" / "analysis.json").read_text())
    assert (record["tokens"], record["vocabulary"], record["split"]) == (150, 61, None)
    assert record["models"][0]["rank"] == 9


@pytest.mark.parametrize("extra", [("--tokens", 5), ("--precision", "float32")], ids=str)
def test_options_of_a_model_of_transformers(place, extra):
    record = analyze_json("--hf", "tiny", "--text", "text.txt", *extra, cwd=place)
    tokens, precision = (5, "float64") if "--tokens" in extra else (150, "float32")
    assert (record["tokens"], record["models"][0]["precision"]) == (tokens, precision)


def test_a_model_without_a_plain_softmax_may_be_projected(place):
    record = analyze_json("--hf", "capped", "--text", "text.txt", "--projection", 20, cwd=place)
    assert (record["models"][0]["head"], record["models"][0]["projected"]) == ("other", 20)


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["mos", "--split", "train"],
        ["mos", "--tokens", "many"],
        ["mos", "--tokens", "1"],
        ["mos", "--projection", "15"],
        ["mos", "--out", "toy/test.txt"],
        [],
        ["mos", "--hf", "tiny", "--text", "text.txt"],
        ["--hf", "tiny"],
        ["mos", "--text", "text.txt"],
        ["--hf", "tiny", "--text", "text.txt", "--precision", "int4"],
    ],
    ids=" ".join,
)
def test_mistakes_end_with_one_sentence(place, arguments):
    fails("analyze", *arguments, cwd=place)


@pytest.mark.parametrize(
    ("model", "text"),
    [("tiny", "missing.txt"), ("tiny", "binary.txt"), ("tiny", "word.txt"), ("./missing", "text.txt")],
)
def test_unreadable_models_and_texts_are_named(place, model, text):
    done = highrank("analyze", "--hf", model, "--text", text, cwd=place, check=2)
    name = text if model == "tiny" else model
    assert name in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
