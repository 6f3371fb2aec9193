"""Records with dynamic evaluation and the cache: what is computed, kept after an interruption, and reused."""

from dataclasses import replace

import pytest

import highrank
from helpers import CPU, TOY
from highrank.errors import UserError
from highrank.evaluation.cache import cache_evaluate
from highrank.evaluation.dynamic import dynamic_evaluate, gradient_statistics
from highrank.runs.disk_cache import clear_cache
from highrank.runs.evaluations import complete_record, read_earlier
from highrank.runs.folder import Run
from highrank.runs.record import write_record
from highrank.runs.training import train_run

TUNED = {"tune": True, "tune_tokens": 60}


@pytest.fixture(autouse=True)
def _short_searches(monkeypatch):
    monkeypatch.setattr("highrank.evaluation.tune.MOST_POINTS", 3)


@pytest.fixture
def run(toy_corpus, tmp_path):
    run = Run(tmp_path / "run")
    train_run(TOY, toy_corpus, run, CPU, max_epochs=1)
    return run


def record(run, corpus, *methods, **options):
    return complete_record(run, corpus, CPU, methods, **options)


def stages_of(run, corpus, *methods, interrupt_at=None, **options):
    """Return the stages that a call computes, up to the one at which it is interrupted."""
    names = []

    def on_stage(stage, done, total):
        if stage == interrupt_at:
            raise KeyboardInterrupt
        if stage not in names:
            names.append(stage)

    try:
        record(run, corpus, *methods, on_stage=on_stage, **options)
    except KeyboardInterrupt:
        assert interrupt_at
    return names


def test_results_of_another_process_are_kept(run, toy_corpus):
    def on_stage(stage, done, total):
        if stage == "test, cache" and not other.exists():
            other.write_text("")
            record(run, toy_corpus, "dynamic")

    other = run.folder / "other"
    record(run, toy_corpus, "cache", on_stage=on_stage)
    assert stages_of(run, toy_corpus, "cache", "dynamic") == []


def test_results_equal_separate_evaluations(run, toy_corpus):
    result = record(run, toy_corpus, "dynamic", "cache", **TUNED)
    model = highrank.load(run.folder).model
    statistics = gradient_statistics(model, toy_corpus.splits["train"], result.dynamic.settings)

    def dynamic(ids, settings):
        return pytest.approx(dynamic_evaluate(model, ids, statistics, settings).perplexity)

    def cache(ids, settings):
        return pytest.approx(cache_evaluate(model, ids, settings).perplexity)

    for method, published, tuned in (
        (dynamic, result.dynamic, result.dynamic_tuned),
        (cache, result.cache, result.cache_tuned),
    ):
        for part in (published, tuned):
            assert part.valid_ppl == method(toy_corpus.splits["valid"], part.settings)
            assert part.test_ppl == method(toy_corpus.splits["test"], part.settings)
        assert tuned.settings == tuned.tuning.best
        assert tuned.tuning.tokens == 60
        assert tuned.tuning.tried[0]["perplexity"] == method(toy_corpus.splits["valid"][:61], tuned.settings)
    assert len(result.cache_tuned.tuning.tried) == 20  # the best of hundreds


def test_nothing_is_computed_twice(run, toy_corpus):
    first = record(run, toy_corpus, "dynamic", "cache", **TUNED)
    assert stages_of(run, toy_corpus, "dynamic", "cache", **TUNED) == []
    assert record(run, toy_corpus) == first  # also without asking for them


@pytest.mark.parametrize("method", ["dynamic", "cache"])
@pytest.mark.parametrize("options", [{}, TUNED], ids=["published", "tuned"])
def test_an_interruption_loses_one_split(run, toy_corpus, method, options):
    stage = f"test, {method}, tuned" if options else f"test, {method}"
    stages_of(run, toy_corpus, method, interrupt_at=stage, **options)
    result = record(run, toy_corpus)
    assert getattr(result, f"{method}_tuned" if options else method) is None  # only complete results are recorded
    assert stages_of(run, toy_corpus, method, **options) == [stage]


def test_each_number_of_tokens_gives_its_own_search(run, toy_corpus):
    first = record(run, toy_corpus, "cache", **TUNED).cache_tuned
    other = record(run, toy_corpus, "cache", tune=True, tune_tokens=9).cache_tuned
    assert other.tuning.tokens == 9
    assert other.settings != first.settings
    again = record(run, toy_corpus, "cache", **TUNED).cache_tuned
    assert (again.tuning, again.test_ppl) == (first.tuning, first.test_ppl)


def test_an_interrupted_second_search_keeps_the_first_result(run, toy_corpus):
    first = record(run, toy_corpus, "cache", **TUNED)
    other = {"tune": True, "tune_tokens": 9}
    stages_of(run, toy_corpus, "cache", interrupt_at="tuning the cache", **other)
    assert record(run, toy_corpus).cache_tuned == first.cache_tuned
    stages_of(run, toy_corpus, "cache", interrupt_at="test, cache, tuned", **other)
    assert record(run, toy_corpus, earlier=first).cache_tuned == first.cache_tuned


def test_results_of_an_earlier_state_do_not_count(run, toy_corpus):
    record(run, toy_corpus, "cache")
    train_run(TOY, toy_corpus, run, CPU, resume=True, max_epochs=2)
    assert record(run, toy_corpus).cache is None
    assert "valid, cache" in stages_of(run, toy_corpus, "cache")


@pytest.mark.parametrize("method", ["dynamic", "cache"])
def test_results_of_an_earlier_record_are_kept(run, toy_corpus, method):
    earlier = record(run, toy_corpus, method)
    (run.folder / "evaluations.jsonl").unlink()  # as on another machine
    clear_cache()
    assert getattr(record(run, toy_corpus, earlier=earlier), method) == getattr(earlier, method)
    assert stages_of(run, toy_corpus, method, earlier=earlier) == []
    assert getattr(record(run, toy_corpus, earlier=replace(earlier, updates=1)), method) is None


def test_a_damaged_line_is_an_error(run, toy_corpus):
    (run.folder / "evaluations.jsonl").write_text('{"updates": 1}\n')
    with pytest.raises(UserError, match=r"evaluations\.jsonl"):
        record(run, toy_corpus)


def test_a_record_of_another_run_or_a_later_state_is_not_replaced(run, toy_corpus, tmp_path):
    path = tmp_path / "record.json"
    result = record(run, toy_corpus)
    write_record(path, result)
    assert read_earlier(run, path) == result
    another = replace(result.provenance, started="2018-04-30T00:00:00+00:00")
    for other in (replace(result, provenance=another), replace(result, updates=result.updates + 1)):
        write_record(path, other)
        with pytest.raises(UserError, match=r"record\.json"):
            read_earlier(run, path)
