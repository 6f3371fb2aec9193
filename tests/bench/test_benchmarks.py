"""The benchmarks on sizes that take no time; no test looks at how long anything took."""

import importlib
import math

import pytest
import torch

from highrank.bench import lstm, mos_nll, peers
from highrank.bench.lstm import lstm_benchmark
from highrank.bench.mos_nll import llm_benchmark, loss_benchmark, parse_sizes, scaling_benchmark
from highrank.bench.peers import Implementation, naive
from highrank.bench.step import CASES, PLAIN, step_benchmark
from highrank.bench.table import run_benchmark

CPU = torch.device("cpu")

# --- the loss -------------------------------------------------------------------------------------------------------


def run_tiny(tmp_path):
    return run_benchmark(loss_benchmark("16x3x8x60", "auto", CPU, rounds=1), tmp_path / "a.csv")


def test_the_loss_is_measured_next_to_the_naive_one(tmp_path):
    rows = {row.implementation: row for row in run_tiny(tmp_path)}
    for row in (rows["highrank, chunked"], rows["naive"]):
        assert (row.status, row.N, row.K, row.D, row.V, row.dtype) == ("ok", 16, 3, 8, 60, "float32")
        assert row.q25_ms <= row.median_ms <= row.q75_ms
        assert row.error < 1e-3


def test_a_mixture_of_a_large_model_is_measured_next_to_its_softmax(tmp_path):
    rows = run_benchmark(llm_benchmark("auto", CPU, 1, [(16, 2, 8, 60), (16, 4, 8, 60)]), tmp_path / "a.csv")
    assert [row.K for row in rows] == [1, 1, 2, 4]
    assert {row.status for row in rows} == {"ok"}


@pytest.mark.parametrize(
    ("reason", "one"),
    [
        ("ArithmeticError", Implementation("dw", lambda: lambda h, p, w, b, y: naive(h, p, 2 * w - w.detach(), b, y))),
        ("ArithmeticError", Implementation("NaN", lambda: lambda *inputs: naive(*inputs) * math.nan)),
        ("ModuleNotFoundError", Implementation("absent", lambda: importlib.import_module("absent"))),
    ],
    ids=lambda value: getattr(value, "name", None),
)  # fmt: skip
def test_a_wrong_or_absent_peer_is_not_timed(tmp_path, monkeypatch, reason, one):
    monkeypatch.setattr(peers, "IMPLEMENTATIONS", [one])
    (row,) = run_tiny(tmp_path)
    assert row.status.startswith(f"failed: {reason}")
    assert row.median_ms is None


def test_a_peer_that_needs_more_memory_than_is_free_is_not_timed(tmp_path, monkeypatch):
    monkeypatch.setattr(mos_nll, "BYTES_PER_LOGIT", 10**12)
    rows = {row.implementation: row for row in run_tiny(tmp_path)}
    assert rows["naive"].status.startswith("failed: UserError")
    assert rows["highrank, chunked"].status == "ok"


def test_sizes_are_names_or_numbers():
    assert parse_sizes("ptb, 8x2x4x9") == {"ptb": (840, 15, 280, 10_000), "8x2x4x9": (8, 2, 4, 9)}


def test_scaling_compares_a_mixture_with_one_softmax(tmp_path, monkeypatch):
    monkeypatch.setattr(mos_nll, "CPU_SWEEPS", {"K": (2,), "V": (50,)})
    rows = run_benchmark(scaling_benchmark("float32", CPU, rounds=1), tmp_path / "a.csv")
    assert [(row.size, row.N, row.K, row.V) for row in rows] == [
        ("K=2", 64, 2, 10_000), ("K=2", 64, 1, 10_000), ("K=2", 64, 1, 10_000),
        ("V=50", 64, 15, 50), ("V=50", 64, 1, 50), ("V=50", 64, 1, 50),
    ]  # fmt: skip
    assert {row.status for row in rows} == {"ok"}


# --- the LSTM -------------------------------------------------------------------------------------------------------


def test_lstm_layers_are_measured_next_to_torchs(tmp_path, monkeypatch):
    monkeypatch.setattr(lstm, "SHAPES", {"a": ((5, 7, 4), 3)})
    ours, torchs = run_benchmark(lstm_benchmark(CPU, rounds=1), tmp_path / "a.csv")
    assert (ours.status, torchs.status, ours.layers) == ("ok", "ok", "5-7-4")
    assert (ours.times_ours, torchs.times_ours) == (1.0, torchs.best_ms / ours.best_ms)


# --- training steps -------------------------------------------------------------------------------------------------

SMALL = ["model.embed_dim=6", "model.hidden_sizes=8,6", "train.batch_size=4", "train.bptt=5"]


@pytest.mark.parametrize("averaging", ["nt-asgd", "two-tailed"])
def test_a_step_is_compared_with_its_softmax(tmp_path, averaging):
    settings = [*SMALL, f"train.averaging={averaging}"]
    benchmark = step_benchmark("ptb-softmax, ptb-mos", False, settings, CPU, rounds=2)
    softmax, mos = run_benchmark(benchmark, tmp_path / "a.csv")
    assert (softmax.status, mos.status, mos.rounds, mos.vocabulary, mos.how) == ("ok", "ok", 2, 10_000, PLAIN)
    assert mos.slowdown == pytest.approx(mos.median_ms / softmax.median_ms)
    assert mos.tokens_per_second == pytest.approx(4 * 5 / mos.median_ms * 1e3)


def test_steps_average_as_in_training(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("highrank.training.step.Step.__call__", lambda self, *_: seen.append(self.optimizer.averaging))
    run_benchmark(step_benchmark("ptb-softmax,1b-softmax", False, SMALL, CPU, rounds=4), tmp_path / "a.csv")
    assert seen == [True] * 5 + [False] * 5  # one of five warms up


def test_cases_have_the_windows_of_their_softmax():
    benchmark = step_benchmark(",".join(CASES), False, [], CPU, rounds=1)
    windows = {row.recipe: (row.batch, row.bptt) for row, _ in benchmark.jobs}
    same = [name for name in CASES if not name.endswith("-best")]  # those have their own best settings
    assert [windows[name] for name in same] == [windows[CASES[name].softmax] for name in same]
