"""The quickstart at toy length: both parts, the report, the figure and the runs."""

import dataclasses
import json

import pytest
import torch

from helpers import fails, highrank
from highrank.cli import quickstart
from highrank.data import corpus as corpora
from highrank.data.synthetic import gaussian_language


@pytest.fixture
def short(monkeypatch):
    corpus = corpora.load_corpus("pydoc")
    splits = {split: ids[: 3000 if split == "train" else 700] for split, ids in corpus.splits.items()}
    monkeypatch.setattr(corpora, "load_corpus", lambda name: dataclasses.replace(corpus, splits=splits))
    monkeypatch.setattr(quickstart, "STEPS", 150)
    monkeypatch.setattr(quickstart, "EPOCHS", 1)


def test_quickstart_shows_the_bottleneck(short, tmp_path):
    highrank("quickstart", cwd=tmp_path)
    report = json.loads((tmp_path / "quickstart" / "report.json").read_text())
    softmax, moc, mos, _ = report["fits"]
    assert softmax["rank"] == moc["rank"] == moc["rank_bound"] == quickstart.EMBED_DIM + 2
    assert mos["rank"] == quickstart.WORDS
    assert moc["parameters"] == mos["parameters"]
    assert mos["kl"] < softmax["kl"]
    models = report["models"]
    for model in models:
        assert model["rank"] <= (model["rank_bound"] or min(model["matrix"]))
        assert (tmp_path / model["folder"] / "checkpoint.json").exists()
    assert models[2]["rank"] > 2 * models[0]["rank_bound"]
    assert (tmp_path / "quickstart" / "figure.png").read_bytes()[:4] == b"\x89PNG"


def test_existing_output_is_never_overwritten(short, tmp_path):
    (tmp_path / "quickstart" / "runs" / "pydoc-mos").mkdir(parents=True)
    (tmp_path / "quickstart" / "runs" / "pydoc-mos" / "notes.md").write_text("mine")
    assert "pydoc-mos" in fails("quickstart", "--out", "quickstart", cwd=tmp_path)
    highrank("quickstart", cwd=tmp_path)
    assert (tmp_path / "quickstart-2" / "report.json").exists()
    assert sorted(path.name for path in (tmp_path / "quickstart").iterdir()) == ["runs"]


def test_the_fits_depend_on_the_seed_only(short):
    language = gaussian_language(quickstart.CONTEXTS, quickstart.WORDS, 1.5, torch.Generator().manual_seed(1))
    first, again, other = ([fit.kl for fit in quickstart._fit_heads(language, s)] for s in (3, 3, 4))
    assert first == again != other
