"""The benchmarks on sizes that take no time; no test looks at how long anything took."""

import math
from dataclasses import replace

import pytest
import torch

from highrank.bench import mos_nll, scaling, step
from highrank.bench.benchmark import Benchmark, Job, run_benchmark
from highrank.bench.lstm import LayerShape, choose_shapes, lstm_benchmark
from highrank.bench.mos_nll import LossRow, loss_benchmark, parse_sizes
from highrank.bench.peers import Implementation, naive
from highrank.bench.scaling import scaling_benchmark, sweep
from highrank.bench.step import CASES, FAST, PLAIN, StepRow, choose_ways, parse_cases, step_benchmark
from highrank.bench.table import origin, read_rows
from highrank.errors import UserError
from highrank.models.language_model import build_model

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
TINY = {"tiny": (16, 3, 8, 60)}


def loss_row(**values):
    known = {"size": "tiny", "N": 16, "K": 3, "D": 8, "V": 60, "dtype": "float32", "device": "cpu"}
    return LossRow(**{**origin(CPU), **known, **values})


# --- running jobs ---------------------------------------------------------------------------------------------------


def test_every_row_is_on_disk_in_the_order_of_the_jobs(tmp_path):
    jobs = [Job(loss_row(implementation=name), lambda row: replace(row, median_ms=2.0)) for name in "ab"]
    table = run_benchmark(Benchmark("x", LossRow, jobs), tmp_path, CPU)
    assert read_rows(tmp_path / "x_cpu.csv", LossRow) == table.rows
    assert [row.implementation for row in table.rows] == ["a", "b"]


def test_a_job_that_fails_does_not_stop_the_others(tmp_path):
    def fail(row):
        raise RuntimeError("no kernel image\nand more")

    jobs = [Job(loss_row(implementation="a"), fail), Job(loss_row(implementation="b"), lambda row: row)]
    rows = run_benchmark(Benchmark("x", LossRow, jobs), tmp_path, CPU).rows
    assert [row.status for row in rows] == ["failed: RuntimeError: no kernel image", "ok"]


def test_no_job_starts_after_the_deadline(tmp_path):
    started = []
    jobs = [Job(loss_row(implementation="a"), started.append)]
    (row,) = run_benchmark(Benchmark("x", LossRow, jobs), tmp_path, CPU, deadline=-math.inf).rows
    assert row.status.startswith("skipped")
    assert not started


# --- the loss -------------------------------------------------------------------------------------------------------


def test_the_loss_is_measured_next_to_the_naive_one(tmp_path):
    rows = run_benchmark(loss_benchmark(TINY, CPU, torch.float32, rounds=1), tmp_path, CPU).rows
    assert {"highrank, chunked", "naive"} <= {row.implementation for row in rows}
    for row in rows:
        assert row.status == "ok"
        assert (row.N, row.K, row.D, row.V) == (16, 3, 8, 60)
        assert row.q25_ms <= row.median_ms <= row.q75_ms
        assert row.tflops == pytest.approx(3 * 2 * 16 * 3 * 8 * 60 / row.best_ms / 1e9)
        assert row.grad_error < 1e-3


def only(monkeypatch, **options):
    """Let the benchmark find one implementation, computed by `options["load"]()`."""
    monkeypatch.setattr(
        mos_nll, "implementations", lambda *_: [Implementation("peer", distribution="torch", **options)]
    )


def test_a_peer_with_wrong_gradients_is_rejected_before_it_is_timed(tmp_path, monkeypatch):
    only(monkeypatch, load=lambda: lambda h, log_pi, w, b, y: naive(h, log_pi, 2 * w - w.detach(), b, y))
    (row,) = run_benchmark(loss_benchmark(TINY, CPU, torch.float32, rounds=1), tmp_path, CPU).rows
    assert row.status.startswith("rejected")
    assert row.grad_error > 0.5
    assert row.median_ms is None


def test_a_peer_that_returns_nan_is_rejected(tmp_path, monkeypatch):
    only(monkeypatch, load=lambda: lambda *inputs: naive(*inputs) * math.nan)
    (row,) = run_benchmark(loss_benchmark(TINY, CPU, torch.float32, rounds=1), tmp_path, CPU).rows
    assert row.status.startswith("rejected")


def test_a_peer_that_needs_more_memory_than_is_free_is_skipped(tmp_path, monkeypatch):
    only(monkeypatch, load=lambda: naive, bytes_per_logit=10**12)
    (row,) = run_benchmark(loss_benchmark(TINY, CPU, torch.float32, rounds=1), tmp_path, CPU).rows
    assert row.status.startswith("skipped")


def test_ratios_compare_with_the_fastest_of_ours_at_the_same_size():
    rows = [
        loss_row(implementation="highrank, chunked", best_ms=4.0, median_ms=4.0),
        loss_row(implementation="highrank, triton", best_ms=1.0, median_ms=5.0),
        loss_row(implementation="peer", best_ms=3.0, median_ms=3.0),
        loss_row(implementation="broken"),
        loss_row(implementation="highrank, chunked", best_ms=0.5, median_ms=0.5, size="other"),
    ]
    _, _, peer, broken, _ = mos_nll.fill_ratios(rows)
    assert (peer.times_ours, peer.eager_times_ours) == (3.0, 0.75)
    assert (broken.times_ours, broken.tflops) == (None, None)


def test_sizes_are_names_or_numbers():
    assert parse_sizes("ptb, 8x2x4x9") == {"ptb": (840, 15, 280, 10_000), "8x2x4x9": (8, 2, 4, 9)}


@pytest.mark.parametrize("text", ["pbt", "8x0x4x9", "8x2x4", ","])
def test_other_sizes_are_an_error(text):
    with pytest.raises(UserError):
        parse_sizes(text)


# --- scaling --------------------------------------------------------------------------------------------------------


def test_a_sweep_varies_one_dimension_at_a_time():
    assert sweep((8, 3, 4, 50), K=(1, 2), N=(5,)) == [("K", (8, 1, 4, 50)), ("K", (8, 2, 4, 50)), ("N", (5, 3, 4, 50))]


def test_a_mixture_is_compared_with_the_same_op_with_one_component(tmp_path, monkeypatch):
    shapes = []

    def time_columns(call, device, rounds, graph):
        shapes.append(tuple(call.args[1][0].shape))
        return {"median_ms": 6.0, "best_ms": [6.0, 2.0, 4.0][len(shapes) - 1]}

    monkeypatch.setattr(scaling, "time_columns", time_columns)
    benchmark = scaling_benchmark(sweep((4, 3, 5, 9), K=(3,)), CPU, torch.float32, rounds=1)
    (row,) = run_benchmark(benchmark, tmp_path, CPU).rows
    assert shapes == [(4, 3, 5), (4, 1, 5), (4, 1, 5)]
    assert (row.best_ms, row.softmax_ms, row.cross_entropy_ms, row.ratio) == (6.0, 2.0, 4.0, 3.0)


# --- the LSTM -------------------------------------------------------------------------------------------------------


def test_lstm_layers_are_measured_next_to_torchs(tmp_path):
    ours, torchs = run_benchmark(lstm_benchmark([LayerShape("a", "5-7-4", 3, 4)], CPU, rounds=1), tmp_path, CPU).rows
    assert (ours.status, torchs.status) == ("ok", "ok")
    assert (ours.times_ours, torchs.times_ours) == (1.0, torchs.best_ms / ours.best_ms)


def test_lstm_shapes_are_the_papers_by_default():
    assert [(shape.layers, shape.batch) for shape in choose_shapes(None, None)] == [
        ("280-960-960-620", 12),
        ("280-960-960-620", 16),
        ("300-1150-1150-650", 15),
    ]


@pytest.mark.parametrize("layers", ["12", "5-0", "5-x"])
def test_other_layers_are_an_error(layers):
    with pytest.raises(UserError):
        choose_shapes(layers, None)


# --- training steps -------------------------------------------------------------------------------------------------

SMALL = ("model.embed_dim=6", "model.hidden_sizes=8,6", "train.batch_size=4", "train.bptt=5")


@pytest.mark.parametrize("extra", [(), ("train.averaging=two-tailed",)])
def test_a_step_is_compared_with_its_softmax(tmp_path, extra):
    cases = parse_cases("pydoc-softmax, pydoc-mos")
    benchmark = step_benchmark(cases, CPU, 2, settings=[*SMALL, *extra], vocabulary=30)
    softmax, mos = run_benchmark(benchmark, tmp_path, CPU).rows
    assert (softmax.status, mos.status, mos.rounds, mos.vocabulary) == ("ok", "ok", 2, 30)
    assert mos.slowdown == pytest.approx(mos.median_ms / softmax.median_ms)
    assert mos.tokens_per_second == pytest.approx(4 * 5 / mos.median_ms * 1e3)
    assert (mos.precision, mos.graphs) == ("float32", False)


@pytest.mark.parametrize("averaging", [True, False])
def test_a_step_averages_where_training_would(tmp_path, monkeypatch, averaging):
    seen = []
    monkeypatch.setattr(step.Step, "__call__", lambda self, *window: seen.append(self.optimizer.averaging))
    case = replace(parse_cases("pydoc-softmax")[0], averaging=averaging)
    run_benchmark(step_benchmark([case], CPU, 4, settings=SMALL, vocabulary=20), tmp_path, CPU)
    assert seen == [averaging] * 5  # one of them warms up


def test_a_slowdown_compares_words_of_runs_of_the_same_kind():
    def row(recipe, how, speed, softmax="softmax"):
        known = {"settings": "", "precision": "", "graphs": False, "device": "cpu", "batch": 1, "bptt": 1, "K": 1}
        known |= {"vocabulary": 9, "paper_column": ""}
        return StepRow(recipe=recipe, how=how, tokens_per_second=speed, softmax=softmax, **known, **origin(CPU))

    rows = [row("softmax", FAST, 100.0), row("softmax", PLAIN, 30.0), row("mos", FAST, 80.0), row("x", FAST, 1.0, "y")]
    assert [row.slowdown for row in step.fill_slowdowns(rows)] == [1.0, 1.0, pytest.approx(1.25), None]


def test_a_gpu_runs_some_cases_in_both_ways():
    assert choose_ways(CASES["ptb-mos"], "auto", CUDA) == choose_ways(CASES["ptb-moc"], "both", CUDA) == [FAST, PLAIN]
    assert choose_ways(CASES["ptb-moc"], "auto", CUDA) == [FAST]


def test_a_cpu_runs_without_graphs():
    assert choose_ways(CASES["ptb-mos"], "auto", CPU) == [PLAIN]
    with pytest.raises(UserError):
        choose_ways(CASES["ptb-mos"], "fast", CPU)


def test_the_papers_table_of_slowdowns():
    cells = {(case.column, case.name): case.paper for case in CASES.values() if case.paper and case.paper != 1}
    assert cells == {
        ("PTB/bs", "ptb-mos-5"): 1.2, ("PTB/bs", "ptb-mos-10"): 1.6, ("PTB/bs", "ptb-mos"): 1.9,
        ("WT2/bs", "wt2-mos-5"): 1.3, ("WT2/bs", "wt2-mos-10"): 1.9, ("WT2/bs", "wt2-mos"): 2.5,
        ("1B/bs", "1b-mos"): 3.8, ("PTB/best-1", "ptb-mos-best"): 2.8, ("WT2/best-1", "wt2-mos-best"): 6.4,
    }  # fmt: skip


@pytest.mark.parametrize("name", [name for name in CASES if not name.endswith("-best")])
def test_a_case_has_the_windows_of_its_softmax(name):
    train = step.case_recipe(CASES[name], PLAIN, []).train
    softmax = step.case_recipe(CASES[CASES[name].softmax], PLAIN, []).train
    assert (train.batch_size, train.bptt) == (softmax.batch_size, softmax.bptt)
    assert train.micro_batch_size is None


@pytest.mark.parametrize(("name", "millions"), [("1b-mos", 113), ("1b-softmax", 119)])
def test_the_1b_models_have_the_papers_sizes(name, millions):
    with torch.device("meta"):
        model = build_model(step.BENCH_ONLY[name].model, step.BILLION_VOCABULARY)
    assert round(model.n_parameters() / 1e6) == millions
