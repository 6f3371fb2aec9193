"""`highrank analyze` as a user meets it."""

import json
import shutil

import pytest

from helpers import fails, highrank, settings
from highrank.analysis import memory as memory_module


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Three small runs on one toy corpus, trained once."""
    from helpers import write_toy_corpus

    folder = tmp_path_factory.mktemp("analyze")
    write_toy_corpus(folder / "toy")
    for head in ("softmax", "moc", "mos"):
        extra = f"data.corpus=toy model.head={head} model.hidden_sizes=10,6"
        highrank("train", "ptb-mos", *settings(extra), "--out", head, "--max-epochs", 1, cwd=folder)
    return folder


def test_table_record_and_figure(place):
    done = highrank("analyze", "softmax", "moc", "mos", "--contexts", 50, "--out", "found", cwd=place)
    assert "Written to:\n  found/analysis.json\n  found/spectrum.png\n  found/spectrum.svg\n" in done.stdout
    assert "effective" in done.stdout
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
        (["mos", "--out", "toy/test.txt"], "toy/test.txt is a file: choose a folder"),
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
    assert "other was trained on is not at" in fails("analyze", "other", cwd=tmp_path)


# --- models of transformers -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hf_place(tmp_path_factory):
    from analysis.test_hf import TEXT, make

    folder = tmp_path_factory.mktemp("hf")
    make(folder / "tiny")
    make(folder / "capped", "gemma2", final_logit_softcapping=2.0)
    (folder / "text.txt").write_text(TEXT)
    return folder


def test_hf(hf_place):
    done = highrank("analyze", "--hf", "tiny", "--text", "text.txt", "--out", "found", cwd=hf_place)
    words = " ".join(done.stdout.split())
    assert (
        "tiny ends in a softmax over a 61 x 8 matrix, so its log-probabilities have rank at most 9 on any text" in words
    )
    assert "On these tokens their rank is all of that" in words
    record = json.loads((hf_place / "found" / "analysis.json").read_text())
    (model,) = record["models"]
    assert (record["tokens"], record["vocabulary"], record["split"]) == (150, 61, None)
    assert (model["embed_dim"], model["rank"], model["rank_bound"], model["head"]) == (8, 9, 9, "softmax")
    assert model["output_matrix"]["rank"] == 8
    assert 1 <= model["varying"]["directions_90"] <= model["varying"]["directions_99"] <= 9
    assert model["weights_dtype"] == "bfloat16"
    assert (hf_place / "found" / "spectrum.svg").exists()
    few = highrank("analyze", "--hf", "tiny", "--text", "text.txt", "--tokens", 5, cwd=hf_place).stdout
    assert "rank at most 5 here: these 5 tokens and 61 words allow no more" in " ".join(few.split())
    half = highrank("analyze", "--hf", "tiny", "--text", "text.txt", "--precision", "float32", "--json", cwd=hf_place)
    assert json.loads(half.stdout)["models"][0]["rank"] == 9


def test_hf_without_a_plain_softmax(hf_place):
    done = highrank("analyze", "--hf", "capped", "--text", "text.txt", cwd=hf_place)
    assert "the bound D + 2 need not hold" in " ".join(done.stdout.split())
    options = ("--hf", "capped", "--text", "text.txt", "--projection", 20, "--json")
    (model,) = json.loads(highrank("analyze", *options, cwd=hf_place).stdout)["models"]
    assert (model["head"], model["projected"], model["rank"]) == ("other", 20, 20)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "name either run folders or a model with --hf"),
        (["run", "--hf", "tiny", "--text", "text.txt"], "name either run folders or a model with --hf"),
        (["--hf", "tiny"], "--hf and --text go together"),
        (["run", "--text", "text.txt"], "--hf and --text go together"),
        (["--hf", "tiny", "--text", "missing.txt"], "there is no text at missing.txt"),
        (["--hf", "tiny", "--text", "empty.txt"], "empty.txt is empty"),
        (["--hf", "tiny", "--text", "binary.txt"], "binary.txt is not UTF-8 text"),
        (["--hf", "tiny", "--text", "text.txt", "--precision", "int4"], 'there is no precision "int4"'),
        (["--hf", "tiny", "--text", "text.txt", "--tokens", "999"], "has 150 tokens, fewer than the 999 asked for"),
        (["--hf", "tiny", "--text", "word.txt"], "gives 1 tokens, and an analysis needs at least 2"),
        (["--hf", "tiny", "--text", "text.txt", "--projection", "10"], "--projection is not needed here"),
        (["--hf", "capped", "--text", "text.txt", "--precision", "float32"], "use --precision float64"),
        (["--hf", "./missing", "--text", "text.txt"], "there is no folder ./missing"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_hf_mistakes(hf_place, arguments, sentence):
    (hf_place / "empty.txt").write_text(" \n")
    (hf_place / "binary.txt").write_bytes(b"\xff\xfe\x00")
    (hf_place / "word.txt").write_text("w1")
    done = highrank("analyze", *arguments, cwd=hf_place, check=2)
    assert sentence in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_hf_too_little_memory(hf_place, monkeypatch):
    from highrank.analysis.hf import parameter_bytes

    arguments = ("analyze", "--hf", "tiny", "--text", "text.txt")
    weights = parameter_bytes(str(hf_place / "tiny"), "float64")
    for free, sentence in ((weights - 1, "use --precision float32"), (weights + 1, "beside the model")):
        monkeypatch.setattr(memory_module, "free_bytes", lambda device, free=free: free)
        assert sentence in highrank(*arguments, cwd=hf_place, check=2).stderr.splitlines()[-1]
