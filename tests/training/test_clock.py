"""Wall time by a clock that is set by hand."""

import pytest

from highrank.training import clock as module
from highrank.training.clock import METRICS_EVERY_SECONDS, Clock
from highrank.training.state import Progress


@pytest.fixture
def now(monkeypatch):
    time = [100.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: time[0])
    return time


def test_every_second_counts_once(now):
    clock, progress = Clock(60.0), Progress(seconds=1000.0)
    for now[0] in (103.0, 103.0, 110.0):
        clock.count(progress)
    assert progress.seconds == 1010.0
    assert clock.since_start() == 10.0


def test_saving_is_due_at_intervals_or_sooner_where_asked(now):
    clock = Clock(60.0)
    now[0] = 130.0
    assert [clock.save_due(), clock.save_due(31.0), clock.save_due(30.0)] == [False, False, True]
    now[0] = 160.0
    assert clock.save_due()
    assert clock.save_due(1000.0)
    clock.saved()
    assert not clock.save_due()


def test_time_is_up_at_the_end_of_the_budget(now):
    clocks = [Clock(60.0, budget) for budget in (30.0, 30.1, None)]
    now[0] = 130.0
    assert [clock.time_is_up() for clock in clocks] == [True, False, False]


def test_metrics_are_due_at_intervals(now):
    clock, told = Clock(60.0), []
    for now[0] in (100.0, 109.0, 110.0, 111.0, 119.0, 121.0):
        told.append(clock.metrics_due())
    assert METRICS_EVERY_SECONDS == 10.0
    assert told == [False, False, True, False, False, True]
