"""Records with dynamic evaluation and the cache: what is computed, kept after an interruption, and reused."""

import json
from dataclasses import replace

import pytest

import highrank
from helpers import CPU, TOY
from highrank.errors import UserError
from highrank.evaluation.cache import cache_evaluate
from highrank.evaluation.dynamic import dynamic_evaluate, gradient_statistics
from highrank.runs.evaluations import complete_record, read_earlier
from highrank.runs.folder import Run
from highrank.runs.record import write_record
from highrank.runs.training import train

TUNED = {"tune": True, "tune_tokens": 60}


@pytest.fixture(autouse=True)
def _short_searches(monkeypatch):
    monkeypatch.setattr("highrank.evaluation.tune.MOST_POINTS", 3)


@pytest.fixture
def run(toy_corpus, tmp_path):
    run = Run(tmp_path / "run")
    train(TOY, toy_corpus, run, CPU, max_epochs=1)
    return run


class Stages:
    """A progress callback that lists the stages, and interrupts when one of them starts."""

    def __init__(self, interrupt_at=None):
        self.names = []
        self.interrupt_at = interrupt_at

    def __call__(self, stage, done, total):
        if stage == self.interrupt_at:
            raise KeyboardInterrupt
        if stage not in self.names:
            self.names.append(stage)


def record(run, corpus, *methods, stages=None, **options):
    return complete_record(run, corpus, CPU, methods, on_stage=stages or Stages(), **options)


def stages_of(run, corpus, *methods, **options):
    """Return the stages that a call computes."""
    stages = Stages()
    record(run, corpus, *methods, stages=stages, **options)
    return stages.names


def interrupt(run, corpus, *methods, at, **options):
    with pytest.raises(KeyboardInterrupt):
        record(run, corpus, *methods, stages=Stages(at), **options)


def test_results_equal_separate_evaluations(run, toy_corpus):
    result = record(run, toy_corpus, "dynamic", "cache", **TUNED)
    model = highrank.load(run.folder).model
    statistics = gradient_statistics(model, toy_corpus.splits["train"], result.dynamic.settings)
    for split in ("valid", "test"):
        ids = toy_corpus.splits[split]
        for part in (result.dynamic, result.dynamic_tuned):
            ppl = dynamic_evaluate(model, ids, statistics, part.settings).perplexity
            assert getattr(part, f"{split}_ppl") == pytest.approx(ppl)
        for part in (result.cache, result.cache_tuned):
            assert getattr(part, f"{split}_ppl") == pytest.approx(cache_evaluate(model, ids, part.settings).perplexity)


def test_settings_are_tuned_on_the_first_tokens_of_validation(run, toy_corpus):
    result = record(run, toy_corpus, "dynamic", "cache", **TUNED)
    model = highrank.load(run.folder).model
    valid = toy_corpus.splits["valid"][:61]
    statistics = gradient_statistics(model, toy_corpus.splits["train"], result.dynamic.settings)
    for part in (result.dynamic_tuned, result.cache_tuned):
        assert part.settings == part.tuning.best
        assert (part.tuning.split, part.tuning.tokens) == ("valid", 60)
    ppl = dynamic_evaluate(model, valid, statistics, result.dynamic_tuned.settings).perplexity
    assert result.dynamic_tuned.tuning.tried[0]["perplexity"] == pytest.approx(ppl)
    ppl = cache_evaluate(model, valid, result.cache_tuned.settings).perplexity
    assert result.cache_tuned.tuning.tried[0]["perplexity"] == pytest.approx(ppl)
    assert len(result.cache_tuned.tuning.tried) == 20  # the best of hundreds


def test_nothing_is_computed_twice(run, toy_corpus):
    first = record(run, toy_corpus, "dynamic", "cache", **TUNED)
    assert stages_of(run, toy_corpus, "dynamic", "cache", **TUNED) == []
    assert record(run, toy_corpus) == first  # also without asking for them


@pytest.mark.parametrize("method", ["dynamic", "cache"])
def test_an_interruption_loses_one_split(run, toy_corpus, method):
    interrupt(run, toy_corpus, method, at=f"test, {method}")
    assert getattr(record(run, toy_corpus), method) is None  # only complete results are recorded
    computed = [stage for stage in stages_of(run, toy_corpus, method) if stage != "gradient statistics"]
    assert computed == [f"test, {method}"]


@pytest.mark.parametrize("method", ["dynamic", "cache"])
def test_an_interruption_after_a_search_keeps_its_result(run, toy_corpus, method):
    interrupt(run, toy_corpus, method, at=f"valid, {method}, tuned", **TUNED)
    computed = [stage for stage in stages_of(run, toy_corpus, method, **TUNED) if stage != "gradient statistics"]
    assert computed == [f"valid, {method}, tuned", f"test, {method}, tuned"]


def test_a_search_on_another_number_of_tokens_is_a_new_one(run, toy_corpus):
    record(run, toy_corpus, "cache", **TUNED)
    again = record(run, toy_corpus, "cache", tune=True, tune_tokens=61)
    assert again.cache_tuned.tuning.tokens == 61


def test_an_interrupted_second_search_keeps_the_first_result(run, toy_corpus):
    first = record(run, toy_corpus, "dynamic", **TUNED)
    interrupt(run, toy_corpus, "dynamic", at="tuning dynamic evaluation", tune=True, tune_tokens=61)
    assert record(run, toy_corpus).dynamic_tuned == first.dynamic_tuned


def test_results_of_an_earlier_state_do_not_count(run, toy_corpus):
    record(run, toy_corpus, "cache")
    train(TOY, toy_corpus, run, CPU, resume=True, max_epochs=2)
    assert record(run, toy_corpus).cache is None
    assert "valid, cache" in stages_of(run, toy_corpus, "cache")


def test_results_of_an_earlier_record_are_kept(run, toy_corpus):
    earlier = record(run, toy_corpus, "cache")
    (run.folder / "evaluations.jsonl").unlink()  # as on another machine
    assert record(run, toy_corpus, earlier=earlier).cache == earlier.cache
    assert stages_of(run, toy_corpus, "cache", earlier=earlier) == []


def test_other_published_settings_are_evaluated_again(run, toy_corpus):
    earlier = record(run, toy_corpus, "cache")
    (run.folder / "evaluations.jsonl").unlink()
    earlier = replace(earlier, cache=replace(earlier.cache, settings=replace(earlier.cache.settings, lamb=0.3)))
    assert record(run, toy_corpus, "cache", earlier=earlier).cache.settings.lamb == 0.1


def test_a_damaged_line_is_an_error(run, toy_corpus):
    record(run, toy_corpus, "cache")
    with (run.folder / "evaluations.jsonl").open("a") as file:
        file.write('{"kind": "split"}\n')
    with pytest.raises(UserError, match=r"line 3 of .*evaluations\.jsonl"):
        record(run, toy_corpus)


def test_an_earlier_record_must_belong_to_the_same_run(run, toy_corpus, tmp_path):
    path = tmp_path / "record.json"
    result = record(run, toy_corpus)
    write_record(path, result)
    assert read_earlier(run, path) == result
    info = json.loads((run.folder / "run.json").read_text())
    info["provenance"]["started"] = "2018-04-30T00:00:00+00:00"
    (run.folder / "run.json").write_text(json.dumps(info))
    with pytest.raises(UserError):
        read_earlier(run, path)


def test_a_record_of_an_earlier_state_is_replaced_and_of_a_later_one_an_error(run, toy_corpus, tmp_path):
    path = tmp_path / "record.json"
    result = record(run, toy_corpus)
    write_record(path, replace(result, updates=result.updates - 1))
    assert read_earlier(run, path) is None
    write_record(path, replace(result, updates=result.updates + 1))
    with pytest.raises(UserError):
        read_earlier(run, path)
