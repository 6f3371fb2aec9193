"""`highrank analyze` as a user meets it."""

import json
import shutil

import pytest

from highrank.analysis import memory as memory_module
from test_cli import fails, highrank, settings


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Three small runs on one toy corpus, trained once."""
    from conftest import write_toy_corpus

    folder = tmp_path_factory.mktemp("analyze")
    write_toy_corpus(folder / "toy")
    for head in ("softmax", "moc", "mos"):
        extra = f"data.corpus=toy model.head={head} model.hidden_sizes=10,6"
        highrank("train", "ptb-mos", *settings(extra), "--out", head, "--max-epochs", 1, cwd=folder)
    return folder


def test_table_record_and_figure(place):
    done = highrank("analyze", "softmax", "moc", "mos", "--contexts", 50, "--out", "found", cwd=place)
    assert "Written to found/analysis.json, found/spectrum.png, found/spectrum.svg" in done.stdout
    assert "pairwise KLD" in done.stdout
    assert "singular values of a 15 x 15 matrix" in done.stderr
    record = json.loads((place / "found" / "analysis.json").read_text())
    assert record["kind"] == "analysis"
    assert (record["split"], record["vocabulary"]) == ("test", 15)
    softmax, moc, mos = record["models"]
    assert [m["head"] for m in record["models"]] == ["softmax", "moc", "mos"]
    assert softmax["rank_bound"] == moc["rank_bound"] == 8
    assert softmax["rank"] <= 8
    assert moc["rank"] <= 8 < mos["rank"] <= mos["rank_bound"] == 15
    assert mos["kld"]["contexts"] == 50
    assert mos["kld"]["standard_error"] > 0
    assert mos["epochs"] == 1
    assert record["provenance"]["torch"]
    summary = json.loads((place / "mos" / "summary.json").read_text())
    assert mos["perplexity"] == pytest.approx(summary["test_ppl"], rel=1e-4)  # all of test, in float64
    assert (place / "found" / "spectrum.png").read_bytes().startswith(b"\x89PNG")
    assert "normalised singular value" in (place / "found" / "spectrum.svg").read_text()


def test_json_split_tokens_and_projection(place):
    done = highrank("analyze", "mos", "--split", "valid", "--tokens", 60, "--projection", 10, "--json", cwd=place)
    record = json.loads(done.stdout)
    assert (record["split"], record["tokens"]) == ("valid", 60)
    (model,) = record["models"]
    assert (model["projected"], model["columns"], model["rank"]) == (10, 10, 10)
    assert model["effective_rank"] is None
    table = highrank("analyze", "mos", "--tokens", 12, cwd=place).stdout
    assert "it is the tokens that limit the rank" in table
    assert ">= 10" in highrank("analyze", "mos", "--projection", 10, cwd=place).stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing"], "there is no run at nothing"),
        (["mos", "--split", "train"], 'no split "train" to analyse'),
        (["mos", "--tokens", "many"], '--tokens must be a number of at least 2, or all, got "many"'),
        (["mos", "--tokens", "1"], "--tokens must be a number of at least 2"),
        (["mos", "--tokens", "99999"], "fewer than the 99,999 asked for: use --tokens all"),
        (["mos", "--projection", "15"], "--projection must be below the vocabulary's 15 words"),
        (["mos", "--out", "toy/test.txt"], "cannot read or write"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_mistakes(place, arguments, sentence):
    assert sentence in fails("analyze", *arguments, cwd=place)


def test_too_little_memory(place, monkeypatch):
    monkeypatch.setattr(memory_module, "free_bytes", lambda device: 1000)
    assert "lower --tokens and --contexts" in fails("analyze", "mos", cwd=place)


def test_other_text(place, tmp_path, toy_folder):
    (toy_folder / "train.txt").write_text("the cat likes a dog\n" * 100)
    extra = "data.corpus=toy model.hidden_sizes=10,6"
    highrank("train", "ptb-mos", *settings(extra), "--out", "other", "--max-epochs", 1, cwd=tmp_path)
    assert "were trained on different text" in fails("analyze", "other", place / "mos", cwd=tmp_path)
    (toy_folder / "train.txt").write_text("something else\n" * 200)
    assert "is not the one that other was trained on" in fails("analyze", "other", cwd=tmp_path)
    shutil.rmtree(toy_folder)
    assert "there is no corpus, nor a folder with train.txt" in fails("analyze", "other", cwd=tmp_path)
