"""The searches find the best settings, list every point, and report edges."""

import math
from dataclasses import replace

import pytest
import torch

from highrank.evaluation.cache import cache_evaluate
from highrank.evaluation.dynamic import dynamic_evaluate, gradient_statistics
from highrank.evaluation.perplexity import Evaluation
from highrank.evaluation.tune import (
    DYNAMIC_KNOBS,
    LAMBDAS,
    LEAST_GAIN,
    MOST_POINTS,
    Tuned,
    coarse_to_fine,
    tune_cache,
    tune_dynamic,
)
from highrank.models import build_model
from highrank.recipes import ModelSpec
from highrank.recipes.recipe import CacheSettings, DynamicSettings

V = 20
START = DynamicSettings(lr=0.01, lamb=0.05, epsilon=0.01, stats_batch_size=4)


def make(head):
    torch.manual_seed(2)
    return build_model(ModelSpec(head=head, embed_dim=6, hidden_sizes=(8, 6), n_components=3), V).double().eval()


@pytest.mark.parametrize("optimum", [(0.04, 0.05, 0.01), (0.0025, 0.2, 0.0141421), (0.01, 0.05, 0.01)])
def test_coarse_to_fine_finds_the_minimum_of_a_quadratic(optimum):
    """The minima lie on the grid of the search, and two of the settings interact."""
    calls = []

    def bowl(s):
        calls.append(s)
        x = [math.log(getattr(s, knob) / best) for knob, best in zip(DYNAMIC_KNOBS, optimum, strict=True)]
        return x[0] ** 2 + x[1] ** 2 + 0.8 * x[0] * x[1] + 0.1 * x[2] ** 2

    best = coarse_to_fine(START, bowl)
    assert [getattr(best, knob) for knob in DYNAMIC_KNOBS] == pytest.approx(optimum, rel=1e-4)
    assert len({tuple(round(math.log(getattr(s, k)), 5) for k in DYNAMIC_KNOBS) for s in calls}) < MOST_POINTS


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
        return Evaluation(math.nan if settings.lr > 0.015 else -settings.lr, 23)

    monkeypatch.setattr("highrank.evaluation.tune.dynamic_evaluate", evaluation)
    tuned = tune_dynamic(make("mos"), torch.arange(24) % V, [], START)
    assert tuned.best.lr == pytest.approx(0.01 * math.sqrt(2), rel=1e-5)
    assert tuned.points[-1][1] == math.inf
    assert tuned.summary().tried[-1]["perplexity"] is None  # JSON has no infinity
    assert coarse_to_fine(START, lambda s: math.inf if s.lr > 0.015 else -s.lr).lr == pytest.approx(0.01 * math.sqrt(2))


def test_the_number_of_points_is_bounded(monkeypatch):
    monkeypatch.setattr("highrank.evaluation.tune.dynamic_evaluate", lambda *_: Evaluation(-_[3].lr, 23))
    tuned = tune_dynamic(make("mos"), torch.arange(24) % V, [], START)  # the loss falls with the rate without end
    assert len(tuned.points) == MOST_POINTS
    assert tuned.best.lr == max(s.lr for s, _ in tuned.points)
    assert tuned.at_edge == {"lr": "largest", "lamb": "only", "epsilon": "only"}


@pytest.mark.parametrize("head", ["softmax", "moc", "mos"])
def test_dynamic_settings_are_tuned(head):
    train, ids = torch.randint(V, (203,)), torch.tensor([3, 7, 1, 9] * 6)
    model, reported = make(head), []
    statistics = gradient_statistics(model, train, START)
    tuned = tune_dynamic(model, ids, statistics, START, on_point=lambda *point: reported.append(point))
    losses = [nll for _, nll in tuned.points]
    assert losses == sorted(losses)
    assert len({s for s, _ in tuned.points}) == len(tuned.points) == len(reported) >= 7  # no point twice
    assert START in [s for s, _ in tuned.points]
    assert losses[0] < dynamic_evaluate(model, ids, statistics, START).nll  # repeated text needs a larger rate
    assert losses[0] == dynamic_evaluate(model, ids, statistics, tuned.best).nll
    for knob in DYNAMIC_KNOBS:  # no neighbour on the grid is better
        for factor in (math.sqrt(2), 1 / math.sqrt(2)):
            value = float(f"{getattr(tuned.best, knob) * factor:.6g}")
            near = DynamicSettings(**{**vars(tuned.best), knob: value})
            assert dynamic_evaluate(model, ids, statistics, near).nll >= losses[0] - LEAST_GAIN
    summary = tuned.summary()
    assert summary.at_edge == {}  # a search that ended by itself has looked at both sides
    assert (summary.tokens, summary.points) == (23, len(tuned.points))
    assert summary.tried[0]["perplexity"] == pytest.approx(math.exp(losses[0]))


@pytest.mark.parametrize(
    ("losses", "edge"),
    [
        ({100: 3.0, 200: 2.0, 400: 1.0}, {"window": "largest"}),
        ({100: 1.0, 200: 2.0, 400: 3.0}, {"window": "smallest"}),
        ({100: 2.0, 200: 1.0, 400: 3.0}, {}),
        ({100: 1.0, 200: 1.0, 400: 1.0}, {}),  # all equal
        ({100: 2.0, 200: 1.0 + LEAST_GAIN / 2, 400: 1.0}, {}),  # too small a gain
        ({100: math.inf, 200: 1.0}, {"window": "largest"}),
        ({100: 1.0}, {"window": "only"}),
        ({2_000: 2.0, 4_000: 1.0}, {}),  # the whole text
    ],
)
def test_best_values_at_an_edge_are_reported(losses, edge):
    others = ((0.5, 0.02), (1.0, 0.1), (2.0, 0.3))  # theta and lambda are best in the middle
    points = [
        (CacheSettings(window, theta, lamb), loss + abs(theta - 1))
        for window, loss in losses.items()
        for theta, lamb in others
    ]
    points.sort(key=lambda point: point[1])
    tuned = Tuned(points, 3_000)
    assert tuned.at_edge == tuned.summary(most=1).at_edge == edge


def test_a_cache_search_continues_beyond_its_first_grid(monkeypatch):
    """With three random words, a long window and a large share are best, up to a point."""
    ids, model = torch.randint(3, (400,)), make("mos")
    start, reads = CacheSettings(window=1, theta=1.0, lamb=0.5), []
    model.backbone.register_forward_hook(lambda *_: reads.append(1))
    tuned = tune_cache(model, ids, start)
    assert tuned.at_edge == {}
    assert tuned.best.window > 100
    assert tuned.best.lamb > 0.9
    assert len(reads) == 1  # the model reads the text once
    tried = [(s.window, s.theta, s.lamb) for s, _ in tuned.points]
    assert len(set(tried)) == len(tried)
    assert sum(window >= 399 for window in {window for window, _, _ in tried}) == 1  # longer windows are all equal
    for window in (0.5, 1, 2):  # no neighbour is better
        for theta in (math.sqrt(0.5), 1, math.sqrt(2)):
            near = CacheSettings(round(tuned.best.window * window), tuned.best.theta * theta, tuned.best.lamb)
            assert cache_evaluate(model, ids, near).nll > tuned.points[0][1] - LEAST_GAIN
    monkeypatch.setattr("highrank.evaluation.tune.MOST_ROUNDS", 1)
    assert tune_cache(model, ids, start).at_edge == {"window": "largest"}


def test_a_cache_search_that_starts_at_an_edge_looks_beyond_it():
    """If no word occurs twice, a smaller share of the cache is always better."""
    ids, model = torch.randperm(V), make("mos")
    first = tune_cache(model, ids, CacheSettings())
    assert (first.best.lamb, first.at_edge["lamb"]) == (LAMBDAS[0], "smallest")
    again = tune_cache(model, ids, first.best)
    assert again.best.lamb < first.best.lamb
    assert "lamb" not in tune_cache(model, ids, replace(first.best, lamb=1e-4)).at_edge  # no gain from going further
    largest = tune_cache(model, torch.zeros(40, dtype=torch.long), CacheSettings(window=1, lamb=LAMBDAS[-1]))
    assert largest.best.lamb > LAMBDAS[-1]


def test_a_window_as_long_as_the_text_is_not_an_edge(monkeypatch):
    monkeypatch.setattr("highrank.evaluation.tune.MOST_ROUNDS", 1)  # the first grid only
    assert "window" not in tune_cache(make("mos"), torch.randint(V, (20,)), CacheSettings(window=500)).at_edge


def test_a_cache_search_reports_progress():
    progress = []
    tune_cache(make("mos"), torch.randint(V, (1100,)), CacheSettings(), lambda *done: progress.append(done))
    assert progress[:6] == [(500, 1099), (1000, 1099), (1099, 1099)] * 2  # reading the text, then the first grid
    assert len(progress) % 3 == 0


def test_a_cache_search_from_theta_zero_tries_no_point_twice():
    points = tune_cache(make("mos"), torch.randint(V, (60,)), CacheSettings(window=4, theta=0.0, lamb=0.1)).points
    assert len(set(points)) == len(points)


@pytest.mark.parametrize("head", ["softmax", "moc", "mos"])
def test_a_cache_search_agrees_with_separate_evaluations(head):
    ids, model = torch.randint(V, (120,)), make(head)
    start = CacheSettings(window=20, theta=1.5, lamb=0.13)
    tuned = tune_cache(model, ids, start)
    assert start in [s for s, _ in tuned.points]
    assert tuned.points[0] == (tuned.best, min(nll for _, nll in tuned.points))
    for settings, nll in tuned.points[:: len(tuned.points) // 12]:
        assert nll == pytest.approx(cache_evaluate(model, ids, settings).nll, rel=1e-12)
    assert min(s.window for s, _ in tune_cache(model, ids[:9], CacheSettings(window=1)).points) == 1
    assert len(tuned.summary(most=3).tried) == 3
    assert tuned.summary().points == len(tuned.points) > 500
