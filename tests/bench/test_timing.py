"""Rounds, quartiles and records."""

import csv

import pytest
import torch

from highrank.bench import mos_nll, step
from highrank.bench.record import Record, origin
from highrank.bench.timing import Clock, Timing, in_turns, reason

CPU = torch.device("cpu")


def test_quartiles():
    timing = Timing.of([5.0, 1.0, 3.0, 2.0, 4.0])
    assert timing == (3.0, 2.0, 4.0, 1.0, 5.0, 5)
    assert Timing.of([2.0]) == (2.0, 2.0, 2.0, 2.0, 2.0, 1)


def test_everything_takes_its_turn_and_a_failure_drops_out():
    order: list[str] = []

    def third_time_breaks():
        order.append("b")
        if order.count("b") == 3:
            raise ValueError("enough")

    timings, failures = in_turns({"a": lambda: order.append("a"), "b": third_time_breaks}, CPU, 3, 60)
    assert order == ["a", "b", "a", "b", "a", "b", "a"]  # a warm-up, three rounds
    assert timings.keys() == {"a"}
    assert timings["a"].rounds == 3
    assert failures == {"b": "failed: ValueError: enough"}


def test_when_time_is_up_three_rounds_are_enough():
    timings, _ = in_turns({"a": lambda: None}, CPU, 50, 0.0)
    assert timings["a"].rounds == 3
    timings, _ = in_turns({"a": lambda: None}, CPU, 4, 60.0, at_least=30.0)
    assert timings["a"].rounds == 40  # ten times as many, and no more
    assert Clock(0.0).elapsed() >= 0
    assert not Clock(None).over()


def test_a_reason_is_one_short_line():
    assert reason(RuntimeError("")) == "failed: RuntimeError: "
    assert len(reason(RuntimeError("x" * 500 + "\ny"))) < 160


def test_a_record_is_on_disk_after_every_row(tmp_path):
    record = Record(tmp_path / "new" / "a.csv")
    for i in range(2):
        record.add({"name": f"a, {i}", "ms": None})
        with open(record.path, newline="") as file:
            assert list(csv.DictReader(file)) == [{"name": f"a, {j}", "ms": ""} for j in range(i + 1)]
    assert {"machine", "commit", "torch", "python", "triton", "cuda", "load"} <= origin(CPU).keys()


def test_ratios_are_of_like_with_like():
    rows = [
        {"implementation": "highrank, chunked", "best_ms": 4.0, "median_ms": 4.0, "busy_ms": None},
        {"implementation": "highrank, triton", "best_ms": 1.0, "median_ms": 5.0, "busy_ms": 0.5},
        {"implementation": "peer", "best_ms": 3.0, "median_ms": 3.0, "busy_ms": 1.0},
        {"implementation": "broken", "best_ms": None, "median_ms": None, "busy_ms": None},
    ]
    mos_nll.compare(rows)
    peer, broken = rows[2:]
    assert (peer["times_ours"], peer["eager_times_ours"], peer["busy_times_ours"]) == (3.0, 0.75, 2.0)
    assert broken["times_ours"] is None


def test_a_slowdown_is_a_word_over_the_softmaxs_word_run_alike():
    rows = [
        {"recipe": "softmax", "how": step.FAST, "softmax": "softmax", "tokens_per_second": 100.0},
        {"recipe": "softmax", "how": step.PLAIN, "softmax": "softmax", "tokens_per_second": 30.0},
        {"recipe": "mos", "how": step.FAST, "softmax": "softmax", "tokens_per_second": 80.0},
        {"recipe": "other", "how": step.FAST, "softmax": "none here", "tokens_per_second": 80.0},
    ]
    step.compare(rows)
    assert [row["slowdown"] for row in rows] == [1.0, 1.0, pytest.approx(1.25), None]
