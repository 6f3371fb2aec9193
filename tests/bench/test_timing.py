"""Timing helpers, with a clock that the test moves."""

import pytest
import torch

from highrank.bench import timing
from highrank.bench.timing import Timing, time_blocks, time_call, time_columns

CPU = torch.device("cpu")


class Clock:
    """A clock that stands still unless it is moved."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_a_timing_is_the_median_and_the_quartiles():
    assert Timing.of([5.0, 1.0, 3.0, 2.0, 4.0]) == Timing(3.0, 2.0, 4.0, 1.0, 5.0, 5)


def test_a_timing_of_one_measurement_is_that_measurement():
    assert Timing.of([2.0]) == Timing(2.0, 2.0, 2.0, 2.0, 2.0, 1)


def test_a_call_is_timed_without_its_first_run():
    clock = Clock()
    durations = iter([60.0, *[1.0] * 10])  # seconds; the first call compiles something

    def call():
        clock.now += next(durations)

    result = time_call(call, CPU, rounds=1, clock=clock)
    assert result.max_ms == pytest.approx(1000)


def test_a_call_is_measured_at_least_as_often_as_asked():
    clock = Clock()

    def call():
        clock.now += 1.0

    assert time_call(call, CPU, rounds=6, clock=clock).rounds >= 6


def test_blocks_count_the_wait_but_not_the_warm_up(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(timing.time, "perf_counter", clock)
    blocks = iter([50.0, 4.0, 2.0, 3.0])  # seconds per block, of which the first warms up

    def wait():
        clock.now += next(blocks)

    result = time_blocks(lambda: None, wait, rounds=3, repeat=2, warm_up=1)
    assert (result.min_ms, result.median_ms, result.max_ms) == (1000, 1500, 2000)  # per call


def test_the_best_time_is_the_smaller_of_eager_and_graph(monkeypatch):
    monkeypatch.setattr(timing, "time_call", lambda call, device, rounds: Timing(3.0, 2.0, 4.0, 1.0, 5.0, 9))
    monkeypatch.setattr(timing, "time_graph", lambda call, device: Timing(1.5, 1.4, 1.6, 1.0, 2.0, 9))
    assert time_columns(lambda: None, CPU, 1, graph=False)["best_ms"] == 3.0
    columns = time_columns(lambda: None, CPU, 1, graph=True)
    assert (columns["median_ms"], columns["graph_ms"], columns["best_ms"]) == (3.0, 1.5, 1.5)
