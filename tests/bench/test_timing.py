"""Rounds, quartiles and records."""

import collections
import csv

import pytest
import torch

from highrank.bench import mos_nll, scaling, step, timing
from highrank.bench.record import Record, machine_name, origin
from highrank.bench.timing import Clock, Timing, in_turns, matrix_ceiling, once, reason
from highrank.report.figures import benchmarks as figure

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


def test_a_clock_is_over_when_its_seconds_are(monkeypatch):
    now = [10.0]
    monkeypatch.setattr(timing.time, "monotonic", lambda: now[0])
    clocks = [Clock(seconds) for seconds in (1.0, 3.0, None)]
    now[0] = 12.0
    assert [clock.elapsed() for clock in clocks] == [2.0] * 3
    assert [clock.over() for clock in clocks] == [True, False, False]


def test_a_time_is_the_mean_of_the_calls_in_milliseconds(monkeypatch):
    clock, calls = iter([1.0, 1.006]), []
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
    assert once(lambda: calls.append(1), CPU, repeat=3) == pytest.approx(2.0)
    assert len(calls) == 3


def test_the_matrix_ceiling_is_of_the_quickest_product(monkeypatch):
    times = iter([99.0, 4.0, 2.0, 8.0])  # the first is a warm-up
    monkeypatch.setattr(timing, "once", lambda *_: next(times))
    side, tflops = matrix_ceiling(torch.float32, CPU)
    assert tflops * 1e12 == pytest.approx(2 * side**3 / 2e-3)


@pytest.mark.parametrize(
    ("name", "file"),
    [("NVIDIA H200", "h200"), ("NVIDIA GeForce RTX 4090", "rtx_4090"), ("Tesla V100-SXM2", "tesla_v100_sxm2")],
)
def test_files_are_named_after_the_machine(monkeypatch, name, file):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    assert machine_name(torch.device("cuda")) == file
    assert machine_name(CPU) == "cpu"


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


def test_ways_and_softmaxes_of_a_case():
    ways = step.parse_ways("auto", torch.device("cuda"))
    assert ways(step.CASES["ptb-mos"]) == [step.FAST, step.PLAIN]
    assert ways(step.CASES["ptb-moc"]) == [step.FAST]
    assert step.parse_ways("auto", CPU)(step.CASES["ptb-mos"]) == [step.PLAIN]
    assert [case.softmax for case in step.parse_cases("ptb-mos, pydoc-mos")] == ["ptb-softmax", "pydoc-softmax"]


@pytest.mark.parametrize("averaging", [True, False])
def test_a_step_is_timed_after_its_warm_up_and_averages_where_training_would(monkeypatch, averaging):
    seen = []
    monkeypatch.setattr(step.Training, "train_window", lambda self, window: seen.append(self.optimizer.averaging))
    monkeypatch.setattr(step.Training, "read_totals", lambda self: None)
    recipe = step.override(step.RECIPES["pydoc-softmax"], ["model.embed_dim=4", "model.hidden_sizes=4"])
    row = step._measure(recipe, step.PLAIN, CPU, 20, 4, averaging)
    assert row["rounds"] == 4
    assert seen == [averaging] * 5


def test_the_softmax_beside_a_mixture_is_the_same_op_with_one_component(monkeypatch):
    shapes = {}

    def timed(calls, *rest, **named):
        shapes.update({name: tuple(call.args[1][0].shape) for name, call in calls.items()})
        return {name: Timing(*[ms] * 5, 3) for name, ms in zip(calls, (6.0, 2.0, 4.0), strict=True)}, {}

    monkeypatch.setattr(scaling, "in_turns", timed)
    row = scaling._point((4, 3, 5, 9), CPU, torch.float32, 1, collections.defaultdict(lambda: 1.0))
    assert shapes == {"mixture": (4, 3, 5), "softmax": (4, 1, 5), "cross_entropy": (4, 1, 5)}
    assert (row["ratio"], row["best_ms"], row["softmax_ms"], row["cross_entropy_ms"]) == (3.0, 6.0, 2.0, 4.0)


def test_the_time_left_is_that_of_the_points_left(tmp_path, monkeypatch):
    class Ticks(Clock):
        def elapsed(self):
            self.ticks = getattr(self, "ticks", -10.0) + 10.0
            return self.ticks

    monkeypatch.setattr(scaling, "_cpu_memory", lambda points, dtype: {})
    monkeypatch.setattr(scaling, "_point", lambda *_: {})
    told = []
    sweep = scaling.Sweep((4, 2, 4, 9), {"K": (1, 2, 3)})
    scaling.measure(Record(tmp_path / "a.csv"), sweep, CPU, torch.float32, rounds=1, clock=Ticks(None), say=told.append)
    assert [line.split("about ")[1] for line in told] == ["20 s left)", "10 s left)", "0 s left)"]


def test_bars_reach_from_quartile_to_quartile():
    from matplotlib import pyplot as plt

    _, axes = figure._panels(1, 1, 3, 2)
    figure._bar(axes[0, 0], 0, {"median_ms": 5.0, "q25_ms": 4.0, "q75_ms": 8.0}, "median_ms", "black", 0.5)
    assert axes[0, 0].patches[0].get_width() == 5.0
    (_, _, (reach,)) = axes[0, 0].containers[1]
    assert reach.get_segments()[0][:, 0].tolist() == [4.0, 8.0]
    plt.close(axes[0, 0].figure)
    assert [figure._short(value) for value in (840, 1000, 256_000)] == ["840", "1k", "256k"]
