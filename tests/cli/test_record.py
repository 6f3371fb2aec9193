"""`highrank record`: a record of a run, completed call by call."""

import json

import pytest

from helpers import fails, highrank
from highrank.runs.folder import Run
from highrank.runs.record import read_record, read_summary


def test_a_record_is_the_summary_with_the_results_asked_for(place, trained):
    highrank("record", "run", "--dynamic", "--cache", cwd=place)
    record = read_record(place / "records" / "runs" / "run.json")
    summary = read_summary(Run(trained))
    assert (record.valid_ppl, record.test_ppl, record.curve) == (summary.valid_ppl, summary.test_ppl, summary.curve)
    assert record.settings["model"]["n_components"] == 3
    for method in ("dynamic", "cache"):
        done = highrank("evaluate", "run", f"--{method}", "--split", "valid", "--json", cwd=place)
        assert getattr(record, method).valid_ppl == pytest.approx(json.loads(done.stdout)["perplexity"])


def test_a_second_call_keeps_the_results_of_the_first(place, trained):
    highrank("record", "run", "--cache", cwd=place)
    before = (place / "records" / "runs" / "run.json").read_bytes()
    done = highrank("record", "run", cwd=place)
    assert "cache" in done.stdout
    assert (place / "records" / "runs" / "run.json").read_bytes() == before


def test_a_record_of_another_run_is_not_overwritten(place, trained):
    highrank("record", "run", "--out", "mine.json", cwd=place)
    before = (place / "mine.json").read_bytes()
    info = json.loads((trained / "run.json").read_text())
    info["provenance"]["started"] = "2018-04-30T00:00:00+00:00"
    (trained / "run.json").write_text(json.dumps(info))
    assert "mine.json" in fails("record", "run", "--out", "mine.json", cwd=place)
    assert (place / "mine.json").read_bytes() == before


def test_a_record_of_an_earlier_state_is_replaced(place, trained):
    highrank("record", "run", "--out", "mine.json", cwd=place)
    highrank("train", "ptb-mos", "--resume", "--out", "run", "--max-epochs", 2, cwd=place)
    highrank("record", "run", "--out", "mine.json", cwd=place)
    assert read_record(place / "mine.json").epochs == 2


def test_an_export_is_not_a_run(place, trained):
    highrank("export", "run", "--out", "export", cwd=place)
    assert "export" in fails("record", "export", cwd=place)


def test_tuned_results_are_added_beside_the_published_ones(place, trained):
    highrank("record", "run", "--cache", "--tune-tokens", 60, "--out", "mine.json", cwd=place)
    record = read_record(place / "mine.json")
    assert record.cache.tuning is None
    assert record.cache_tuned.tuning.tokens == 60


def test_tuning_needs_a_method(place, trained):
    assert "--tune" in fails("record", "run", "--tune", cwd=place)


def test_a_missing_run_is_an_error(place):
    assert "nowhere" in fails("record", "nowhere", cwd=place)
