"""The searches find the best settings and list every point."""

import math

import pytest
import torch

from highrank.evaluation.cache import cache_evaluate
from highrank.evaluation.dynamic import dynamic_evaluate, gradient_statistics
from highrank.evaluation.perplexity import Evaluation
from highrank.evaluation.tune import KNOBS, LEAST_GAIN, MOST_POINTS, coarse_to_fine, tune_cache, tune_dynamic
from highrank.models import build_model
from highrank.recipes import ModelSpec
from highrank.recipes.recipe import CacheSettings, DynamicSettings

V = 20
START = DynamicSettings(lr=0.01, lamb=0.05, epsilon=0.01, stats_batch_size=4)


def make(head):
    torch.manual_seed(2)
    return build_model(ModelSpec(head=head, embed_dim=6, hidden_sizes=(8, 6), n_components=3), V).double().eval()


def settings_of(point, kind):
    return kind(**{key: value for key, value in point.items() if key != "perplexity"})


@pytest.mark.parametrize("optimum", [(0.04, 0.05, 0.01), (0.0025, 0.2, 0.0141421), (0.01, 0.05, 0.01)])
def test_coarse_to_fine_finds_the_minimum_of_a_quadratic(optimum):
    """The minima lie on the grid of the search, and two of the settings interact."""
    calls = []

    def bowl(s):
        calls.append(s)
        x = [math.log(getattr(s, knob) / best) for knob, best in zip(KNOBS, optimum, strict=True)]
        return x[0] ** 2 + x[1] ** 2 + 0.8 * x[0] * x[1] + 0.1 * x[2] ** 2

    best = coarse_to_fine(START, bowl)
    assert [getattr(best, knob) for knob in KNOBS] == pytest.approx(optimum, rel=1e-4)
    assert len({tuple(round(math.log(getattr(s, k)), 5) for k in KNOBS) for s in calls}) < MOST_POINTS


def test_rounds_repeat_until_nothing_changes():
    """In a narrow valley, two settings must take small steps in turn."""

    def valley(s):
        x, y = math.log2(s.lr / START.lr) - 4, math.log2(s.lamb / START.lamb) - 4
        return x**2 + y**2 - 1.4 * x * y

    best = coarse_to_fine(START, valley)
    assert best.lr == pytest.approx(16 * START.lr, rel=0.35)
    assert best.lamb == pytest.approx(16 * START.lamb, rel=0.35)


def test_a_point_that_diverges_is_never_chosen(monkeypatch):
    def evaluation(model, ids, statistics, settings, on_progress):
        return Evaluation(torch.full((23,), math.nan if settings.lr > 0.015 else -settings.lr))

    monkeypatch.setattr("highrank.evaluation.tune.dynamic_evaluate", evaluation)
    tuning = tune_dynamic(make("mos"), torch.arange(24) % V, [], START)
    assert tuning.best.lr == pytest.approx(0.01 * math.sqrt(2), rel=1e-5)
    assert tuning.tried[-1]["perplexity"] is None  # JSON has no infinity


def test_the_number_of_points_is_bounded(monkeypatch):
    monkeypatch.setattr("highrank.evaluation.tune.dynamic_evaluate", lambda *_: Evaluation(torch.full((23,), -_[3].lr)))
    tuning = tune_dynamic(make("mos"), torch.arange(24) % V, [], START)  # the loss falls with the rate without end
    assert tuning.points == len(tuning.tried) == MOST_POINTS
    assert tuning.best.lr == max(point["lr"] for point in tuning.tried)


@pytest.mark.parametrize("head", ["softmax", "moc", "mos"])
def test_dynamic_settings_are_tuned(head):
    ids = torch.tensor([3, 7, 1, 9] * 6)
    model = make(head)
    statistics = gradient_statistics(model, torch.randint(V, (203,)), START)
    reported = []
    tuning = tune_dynamic(model, ids, statistics, START, on_point=lambda *point: reported.append(point))
    perplexities = [point["perplexity"] for point in tuning.tried]
    assert perplexities == sorted(perplexities)
    assert sorted(ppl for _, ppl in reported) == perplexities
    assert len({settings for settings, _ in reported}) == tuning.points == len(reported) >= 7  # no point twice
    assert reported[0][0] == START
    assert perplexities[0] < reported[0][1]  # repeated text needs a larger rate
    assert tuning.tokens == 23
    assert settings_of(tuning.tried[0], DynamicSettings) == tuning.best
    best = dynamic_evaluate(model, ids, statistics, tuning.best)
    assert perplexities[0] == best.perplexity
    for knob in KNOBS:  # no neighbour on the grid is better
        for factor in (math.sqrt(2), 1 / math.sqrt(2)):
            value = float(f"{getattr(tuning.best, knob) * factor:.6g}")
            near = DynamicSettings(**{**vars(tuning.best), knob: value})
            assert dynamic_evaluate(model, ids, statistics, near).nll >= best.nll - LEAST_GAIN


def test_a_cache_search_continues_beyond_its_first_grid():
    """With three random words, a long window and a large share are best, up to a point."""
    ids = torch.randint(3, (400,))
    model = make("mos")
    reads = []
    model.backbone.register_forward_hook(lambda *_: reads.append(1))
    tuning = tune_cache(model, ids, CacheSettings(window=1, theta=1.0, lamb=0.5))
    assert tuning.best.window > 100
    assert tuning.best.lamb > 0.9
    assert len(reads) == 1  # the model reads the text once
    tried = [settings_of(point, CacheSettings) for point in tuning.tried]
    assert len(set(tried)) == len(tried)
    assert len({s.window for s in tried if s.window >= 399}) == 1  # longer windows are all equal
    for window in (0.5, 1, 2):  # no neighbour is better
        for theta in (math.sqrt(0.5), 1, math.sqrt(2)):
            near = CacheSettings(round(tuning.best.window * window), tuning.best.theta * theta, tuning.best.lamb)
            assert cache_evaluate(model, ids, near).nll > math.log(tuning.tried[0]["perplexity"]) - LEAST_GAIN


def test_a_cache_search_reports_progress():
    progress = []
    tune_cache(make("mos"), torch.randint(V, (1100,)), CacheSettings(), lambda *done: progress.append(done))
    assert progress[:6] == [(500, 1099), (1000, 1099), (1099, 1099)] * 2  # reading the text, then the first grid


@pytest.mark.parametrize("head", ["softmax", "moc", "mos"])
def test_a_cache_search_agrees_with_separate_evaluations(head):
    ids, model = torch.randint(V, (120,)), make(head)
    start = CacheSettings(window=20, theta=1.5, lamb=0.13)
    tuning = tune_cache(model, ids, start)
    tried = [settings_of(point, CacheSettings) for point in tuning.tried]
    assert start in tried
    assert tuning.best == tried[0]
    assert tuning.points == len(tried) > 500
    perplexities = [point["perplexity"] for point in tuning.tried]
    assert perplexities == sorted(perplexities)
    for i in range(0, len(tried), len(tried) // 12):
        assert perplexities[i] == pytest.approx(cache_evaluate(model, ids, tried[i]).perplexity, rel=1e-12)
