"""The quickstart at toy length: the table, the report and the figure."""

import json

import pytest
import torch

from helpers import fails, highrank
from highrank.analysis.finite_language.models import Fit
from highrank.cli import quickstart
from highrank.data.synthetic import gaussian_language
from highrank.report.figures.quickstart import quickstart_figure


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(quickstart, "STEPS", 150)


def test_quickstart_shows_the_bottleneck(short, tmp_path):
    highrank("quickstart", cwd=tmp_path)
    report = json.loads((tmp_path / "quickstart" / "report.json").read_text())
    softmax, moc, mos, _ = report["fits"]
    assert softmax["rank"] == moc["rank"] == moc["rank_bound"] == quickstart.EMBED_DIM + 2
    assert mos["rank"] == quickstart.WORDS
    assert moc["parameters"] == mos["parameters"]
    assert mos["kl"] < softmax["kl"]
    assert (tmp_path / "quickstart" / "figure.png").read_bytes()[:4] == b"\x89PNG"


def test_existing_output_is_never_overwritten(short, tmp_path):
    (tmp_path / "quickstart").mkdir()
    (tmp_path / "quickstart" / "notes.md").write_text("mine")
    assert "quickstart" in fails("quickstart", "--out", "quickstart", cwd=tmp_path)
    highrank("quickstart", cwd=tmp_path)
    assert (tmp_path / "quickstart-2" / "report.json").exists()
    assert [path.name for path in (tmp_path / "quickstart").iterdir()] == ["notes.md"]


def test_the_fits_depend_on_the_seed_only(short):
    language = gaussian_language(quickstart.CONTEXTS, quickstart.WORDS, 1.5, torch.Generator().manual_seed(1))
    first, again, other = ([fit.kl for fit in quickstart._fit_heads(language, s)] for s in (3, 3, 4))
    assert first == again != other


def test_the_figure_has_a_line_at_the_bound_and_a_caption():
    numbers = {"embed_dim": 1, "parameters": 1, "kl": 0.1, "rank": 3, "curve": [(1, 0.2), (2, 0.1)]}
    numbers["singular_values"] = [1.0, 0.5, 1e-17]
    fits = [Fit(name="Softmax, D=1", rank_bound=3, **numbers), Fit(name="MoS-2, D=1", rank_bound=None, **numbers)]
    figure = quickstart_figure(fits, [1.0, 0.5, 0.1])
    vertical = [line for line in figure.axes[1].lines if list(line.get_xdata()) == [3, 3]]
    assert len(vertical) == 1
    assert figure.get_supxlabel()
