import json
import shutil
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from helpers import fails, highrank, settings, write_toy_corpus
from hf_models import TEXT, save_model
from highrank import hf as highrank_hf
from highrank.analysis.diagnosis import DoctorRecord
from highrank.report.doctor import reading, table_rows
from highrank.schema import from_json

HEADS = ("softmax", "moc", "mos")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with three small runs on one toy corpus, and Hugging Face models."""
    folder = tmp_path_factory.mktemp("doctor")
    write_toy_corpus(folder / "toy")
    for head in HEADS:
        extra = f"data.corpus=toy model.head={head} model.hidden_sizes=10,6"
        highrank("train", "ptb-mos", *settings(extra), "--out", head, "--max-epochs", 1, cwd=folder)
    highrank("export", "mos", "--hf", "exported", cwd=folder)
    save_model(folder / "tiny", dtype=torch.float32)
    save_model(folder / "capped", "gemma2", dtype=torch.float32, final_logit_softcapping=2.0)
    save_model(folder / "bert", "bert")
    (folder / "text.txt").write_text(TEXT)
    (folder / "binary.txt").write_bytes(b"\xff\xfe\x00")
    (folder / "word.txt").write_text("w1")
    return folder


def diagnose(*arguments, cwd) -> DoctorRecord:
    return from_json(DoctorRecord, json.loads(highrank("doctor", *arguments, "--json", cwd=cwd).stdout))


def test_doctor_writes_the_record_and_the_figure(place):
    done = highrank("doctor", "tiny", "--text", "text.txt", "--out", "result", cwd=place)
    for name in ("doctor.json", "doctor.png", "doctor.svg"):
        assert (place / "result" / name).exists()
        assert f"result/{name}" in done.stdout
    assert "61 x 8" in done.stdout
    record = from_json(DoctorRecord, json.loads((place / "result" / "doctor.json").read_text()))
    assert (record.model, record.head, record.text, record.tokens) == ("tiny", "softmax", "text.txt", 150)
    assert record.weights.layer.rank_bound == record.predictions.rank == 9
    assert record.provenance["torch"]


def test_weights_alone_need_no_text(place):
    record = diagnose(".", cwd=place / "tiny")
    assert record.model == "tiny"
    assert (record.text, record.predictions, record.gradient) == (None, None, None)
    assert record.weights.random_share == pytest.approx((8 / 61) ** 0.5)


@pytest.mark.parametrize("head", HEADS)
def test_runs_of_every_head(place, head):
    record = diagnose(head, "--text", "toy/test.txt", cwd=place)
    assert (record.head, record.model) == (head, head)
    assert record.weights.layer.rank_bound == 8
    assert (record.predictions.rank > 8) == (head == "mos")
    assert (record.gradient.reach is not None) == (head == "mos")
    assert 0 < record.gradient.share.mean < 1


def test_a_planted_token_is_named(place, tmp_path):
    save_model(tmp_path / "model", dtype=torch.float32, tie_word_embeddings=False)
    path = tmp_path / "model" / "model.safetensors"
    tensors = load_file(path)
    before = diagnose("model", cwd=tmp_path).weights.unargmaxable.tokens
    tensors["lm_head.weight"][7] = tensors["lm_head.weight"].mean(0)
    save_file(tensors, path, {"format": "pt"})
    record = diagnose("model", cwd=tmp_path)
    assert 7 not in before
    assert record.weights.unargmaxable.tokens == sorted([*before, 7])
    assert "w6" in record.never  # <unk> comes first
    assert "'w6'" in highrank("doctor", "model", cwd=tmp_path).stdout


def test_undecided_tokens_are_counted(place):
    record = diagnose("tiny", cwd=place)
    unargmaxable = replace(record.weights.unargmaxable, undecided=[3, 5])
    record = replace(record, weights=replace(record.weights, unargmaxable=unargmaxable))
    assert "2 undecided" in dict(table_rows(record))["tokens that can never be most likely"]


def test_near_copies_are_counted_and_explained(place):
    record = diagnose("tiny", cwd=place)
    unargmaxable = replace(record.weights.unargmaxable, near_copies=[3, 5, 8])
    copied = replace(record, weights=replace(record.weights, unargmaxable=unargmaxable))
    assert dict(table_rows(copied))["tokens with nearly another's row"] == "3"
    assert len(reading(copied)) == len(reading(record)) + 1


def test_capped_logits_have_no_bound_and_no_gradient_share(place):
    record = diagnose("capped", "--text", "text.txt", cwd=place)
    assert (record.head, record.gradient) == ("other", None)
    assert diagnose("capped", cwd=place).head == "other"


def test_fewer_tokens_are_read_by_default_if_rows_of_a_large_vocabulary_are_needed(place, monkeypatch):
    monkeypatch.setattr("highrank.analysis.matrix.MAX_ELEMENTS", 3000)
    monkeypatch.setattr("highrank.analysis.matrix.LARGE_ELEMENTS", 2500)  # 40 rows of 61 words
    assert diagnose("capped", "--text", "text.txt", cwd=place).tokens == 40
    assert diagnose("capped", "--text", "text.txt", "--tokens", 45, cwd=place).tokens == 45
    assert diagnose("tiny", "--text", "text.txt", cwd=place).tokens == 150  # by its factors


def test_a_converted_mixture_is_diagnosed(place, tmp_path):
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(place / "tiny")
    highrank_hf.convert(model, n_components=3)
    model.get_output_embeddings().shift.weight.data.normal_()
    shutil.copytree(place / "tiny", tmp_path / "mixture")
    model.save_pretrained(tmp_path / "mixture")
    record = diagnose(tmp_path / "mixture", "--text", place / "text.txt", cwd=tmp_path)
    assert (record.head, record.n_components) == ("mos", 3)
    assert record.predictions.rank > 9
    assert record.gradient.reach.mean > record.gradient.share.mean


def test_more_tokens_are_recommended_only_where_their_number_limits_the_rank(place):
    record = diagnose("tiny", "--text", "text.txt", "--tokens", 5, cwd=place)
    assert record.predictions.rank == record.predictions.rank_bound == 5
    softmax_like = replace(record, predictions=replace(record.predictions, rank=2))
    assert "read more" in " ".join(reading(record))
    assert "read more" not in " ".join(reading(softmax_like))


@pytest.mark.parametrize("extra", [("--tokens", 5), ("--precision", "float32")], ids=str)
def test_options_reach_the_analysis(place, extra):
    record = diagnose("tiny", "--text", "text.txt", *extra, cwd=place)
    tokens, precision = (5, "float64") if "--tokens" in extra else (150, "float32")
    assert (record.tokens, record.predictions.precision) == (tokens, precision)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["./missing"], "./missing"),
        (["bert"], "bert"),  # an encoder
        (["tiny", "--text", "missing.txt"], "missing.txt"),
        (["tiny", "--text", "binary.txt"], "binary.txt"),
        (["tiny", "--text", "word.txt"], "word.txt"),
        (["mos", "--text", "text.txt"], "w0"),  # a word that the run does not know
        (["tiny", "--precision", "int4"], "int4"),
        (["mos", "--out", "toy/test.txt"], "toy/test.txt"),
        (["mos", "--precision", "float32"], "precision"),  # a run is diagnosed in float64
        (["mos", "--tokens", "5"], "tokens"),  # of which text?
        (["exported"], "run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_mistakes_are_named(place, arguments, name):
    error = highrank("doctor", *arguments, cwd=place, check=2).stderr.splitlines()[-1]
    assert error.startswith("highrank: ")
    assert name in error


def test_without_transformers_the_error_names_the_extra(place, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    for name in ("highrank.hf", "highrank.hf.pretrained"):  # imported already, but a new process would try again
        monkeypatch.delitem(sys.modules, name)
    assert "[hf]" in highrank("doctor", "tiny", cwd=place, check=2).stderr


def test_doctor_needs_a_model(tmp_path):
    assert "MODEL" in fails("doctor", cwd=tmp_path)
