"""The quickstart at toy length: both parts, the tables, the report, the figure and the runs."""

import dataclasses
import json

import pytest

from helpers import highrank
from highrank.cli import quickstart as package
from highrank.cli.quickstart import known, spoken
from highrank.data.corpus import load_corpus
from highrank.plotting import pyplot
from highrank.report.figures.quickstart import _plain


@pytest.fixture
def short(monkeypatch):
    corpus = load_corpus("pydoc")
    splits = {split: ids[: 3000 if split == "train" else 700] for split, ids in corpus.splits.items()}
    monkeypatch.setattr(package, "load_corpus", lambda name: dataclasses.replace(corpus, splits=splits))
    monkeypatch.setattr(known, "STEPS", 150)
    monkeypatch.setattr(spoken, "EPOCHS", 1)


def test_quickstart(short, tmp_path):
    done = highrank("quickstart", "--out", "q", cwd=tmp_path)
    assert "A language we know" in done.stdout
    assert "What to try next" in done.stdout
    report = json.loads((tmp_path / "q" / "report.json").read_text())
    fits = {fit["name"].split(",")[0]: fit for fit in report["known"]["fits"][:3]}
    assert fits["Softmax"]["rank"] == known.EMBED_DIM + 2
    assert fits["MoC-8"]["rank"] == known.EMBED_DIM + 2
    assert fits["MoS-8"]["rank"] == known.N_WORDS
    assert fits["MoC-8"]["parameters"] == fits["MoS-8"]["parameters"]
    assert fits["MoS-8"]["kl"] < fits["Softmax"]["kl"]
    for run in report["spoken"]["runs"]:
        assert run["rank"] <= (run["rank_bound"] or min(run["matrix"]))
        assert (tmp_path / run["folder"] / "model.safetensors").exists()
    assert report["spoken"]["runs"][2]["rank"] > 2 * report["spoken"]["runs"][0]["rank_bound"]
    assert (tmp_path / "q" / "figure.png").read_bytes()[:4] == b"\x89PNG"
    highrank("quickstart", "--out", "q", cwd=tmp_path)  # again, over the first

    mos = "q/runs/pydoc-mos"
    (tmp_path / mos / "run.json").unlink()  # not a quickstart's any more
    done = highrank("quickstart", "--out", "q", cwd=tmp_path, check=2)
    assert f"{mos} holds something that quickstart did not make" in done.stderr
    assert (tmp_path / mos / "model.safetensors").exists()


def test_the_fit_depends_on_the_seed_only(short):
    (_, first), (_, again), (_, other) = (known.fit_known_language(seed, lambda *_: None) for seed in (3, 3, 4))
    assert [fit.kl for fit in first] == [fit.kl for fit in again]
    assert [fit.kl for fit in first] != [fit.kl for fit in other]


def test_perplexities_are_plain_numbers():
    plot, axis = pyplot().subplots()
    axis.plot([205.0, 91.0, 82.0])
    axis.set_yscale("log")
    _plain(axis.yaxis)
    plot.canvas.draw()
    low, high = axis.get_ylim()
    labels = [
        text.get_text() for y, text in zip(axis.get_yticks(), axis.get_yticklabels(), strict=True) if low < y < high
    ]
    assert labels == ["80", "100", "150", "200"]
    pyplot().close(plot)
