"""`highrank bench` as a user runs it, on sizes that take no time."""

import json

import pytest

from helpers import fails, highrank
from highrank.bench import scaling
from highrank.bench.mos_nll import LossRow
from highrank.bench.table import read_rows
from highrank.cli import bench

TINY = ("--sizes", "16x3x8x60", "--rounds", 1)
LSTM = ("lstm", "--layers", "3-4", "--batch", "2", "--length", "2", "--rounds", "1")
SETTINGS = ("model.embed_dim=6", "model.hidden_sizes=8,6", "train.batch_size=4", "train.bptt=5")
STEP = (
    *("step", "--recipes", "pydoc-softmax,pydoc-mos", "--vocabulary", 30, "--rounds", 2),
    *(part for setting in SETTINGS for part in ("--set", setting)),
)


def assert_files(folder, stem):
    assert (folder / f"{stem}.csv").exists()
    assert (folder / f"{stem}.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (folder / f"{stem}.svg").read_text()


def test_mos_nll_prints_the_rows_that_it_writes(tmp_path):
    done = highrank("bench", "mos-nll", *TINY, "--json", "--device", "cpu", cwd=tmp_path)
    assert_files(tmp_path / "bench", "mos_nll_cpu")
    written = read_rows(tmp_path / "bench" / "mos_nll_cpu.csv", LossRow)
    printed = json.loads(done.stdout)
    assert [row["median_ms"] for row in printed] == [row.median_ms for row in written]


def test_mos_nll_prints_a_table(tmp_path):
    done = highrank("bench", "mos-nll", *TINY, "--out", "o", "--device", "cpu", cwd=tmp_path)
    assert "highrank, chunked" in done.stdout
    assert_files(tmp_path / "o", "mos_nll_cpu")


def test_mos_nll_scaling(tmp_path, monkeypatch):
    monkeypatch.setattr(scaling, "CPU", scaling.sweep((8, 3, 4, 50), K=(1, 2)))
    done = highrank("bench", "mos-nll", "--scaling", "--rounds", 1, "--json", "--device", "cpu", cwd=tmp_path)
    assert [row["K"] for row in json.loads(done.stdout)] == [1, 2]
    assert_files(tmp_path / "bench", "mos_nll_scaling_cpu")


def test_lstm(tmp_path):
    highrank("bench", *LSTM, "--device", "cpu", cwd=tmp_path)
    assert_files(tmp_path / "bench", "lstm_cpu")


def test_step(tmp_path):
    done = highrank("bench", *STEP, "--json", "--device", "cpu", cwd=tmp_path)
    assert [row["recipe"] for row in json.loads(done.stdout)] == ["pydoc-softmax", "pydoc-mos"]
    assert_files(tmp_path / "bench", "step_cpu")


@pytest.mark.parametrize(
    "arguments",
    [
        ("mos-nll", "--sizes", "pbt"),
        ("mos-nll", "--dtype", "float23"),
        ("mos-nll", "--device", "cuda:99"),
        ("lstm", "--layers", "12"),
        ("step", "--recipes", "ptb-moss"),
        ("step", "--how", "quick"),
        ("step", "--how", "fast", "--device", "cpu"),
        ("step", "--recipes", "pydoc-mos", "--set", "train.bppt=3", "--device", "cpu"),
    ],
)
def test_a_mistake_gets_one_sentence(tmp_path, arguments):
    fails("bench", *arguments, cwd=tmp_path)


def test_nothing_measured_is_an_error(tmp_path):
    highrank("bench", "mos-nll", *TINY, "--seconds", "0", "--device", "cpu", cwd=tmp_path, check=2)


def test_all_continues_after_a_part_that_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "PARTS", (("nonsense",), LSTM))
    done = highrank("bench", "all", "--device", "cpu", "--seconds", 60, cwd=tmp_path, check=2)
    assert "nonsense" in done.stderr
    assert_files(tmp_path / "bench", "lstm_cpu")


@pytest.mark.gpu
@pytest.mark.parametrize(
    "command",
    [
        ("mos-nll", "--sizes", "64x3x64x1000", "--rounds", 2),
        ("lstm", "--layers", "128-128", "--batch", 8, "--length", 5, "--rounds", 2),
        (*STEP, "--how", "both"),
    ],
    ids=lambda command: command[0],
)
def test_on_a_gpu_ours_is_also_timed_in_a_graph(tmp_path, command):
    done = highrank("bench", *command, "--json", "--device", "cuda", cwd=tmp_path)
    rows = json.loads(done.stdout)
    if command[0] == "step":
        assert [row["graphs"] for row in rows] == [True, False] * 2
        assert all(row["status"] == "ok" and row["peak_mib"] > 0 for row in rows)
    else:
        ours = [row for row in rows if row["implementation"].startswith(("highrank", "naive", "nn.LSTM"))]
        assert all(row["status"] == "ok" and row["graph_ms"] > 0 for row in ours)
