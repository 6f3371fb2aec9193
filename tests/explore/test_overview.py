"""What the page shows of a whole model."""

import pytest

from helpers import CPU, highrank
from highrank.explore.explorer import Explorer
from highrank.explore.model import open_model
from highrank.explore.overview import component_usage, overview, validation_ids
from highrank.runs.folder import Run


def test_usage_is_the_mean_over_the_text(explorer):
    ids = validation_ids(explorer.model, None)
    usage = component_usage(explorer, ids)
    text = "\n".join(" ".join(explorer.model.words[i] for i in ids).replace("<eos>", "\n").split(" \n "))
    scores = explorer.read(text, 0).scores
    mean = [sum(column) / len(ids) for column in zip(*(s.responsibilities for s in scores), strict=True)]
    assert [component.responsibility for component in usage] == pytest.approx(mean, abs=1e-5)
    assert sum(component.weight for component in usage) == pytest.approx(1, abs=1e-5)
    assert any(component.specialty for component in usage)


def test_a_run_without_its_corpus_has_no_validation_text(runs, tmp_path):
    model = open_model(runs["mos"], CPU)
    model.folder = tmp_path  # not a run
    assert validation_ids(model, None) == []


def test_the_curve_and_the_spectrum_are_shown_where_they_exist(place, trained):
    highrank("analyze", "run", "--out", "analysis", "--contexts", 5, cwd=place)
    model = open_model(trained, CPU)
    shown = overview(model, place / "analysis" / "analysis.json")
    assert shown.curve.valid == [epoch.valid_ppl for epoch in Run(trained).epochs()]
    assert shown.rank <= len(shown.spectrum.values)
    assert overview(model, None).spectrum is None


def test_a_run_without_metrics_has_no_curve(explorer):
    assert overview(explorer.model, None).curve is None


def test_a_mixture_and_a_softmax_differ_in_components(runs):
    counts = [Explorer(open_model(runs[name], CPU)).model.n_components for name in ("mos", "softmax")]
    assert counts == [3, 1]
