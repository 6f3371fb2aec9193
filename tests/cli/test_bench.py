"""`highrank bench` as a user runs it, on sizes that take no time."""

import json

import pytest

from helpers import fails, highrank
from highrank.bench import lstm, measure, mos_nll, step
from highrank.bench.mos_nll import LossRow
from highrank.bench.table import read_rows

TINY = ("mos-nll", "--sizes", "16x3x8x60", "--rounds", 1)
SETTINGS = ("model.embed_dim=6", "model.hidden_sizes=8,6", "train.batch_size=4", "train.bptt=5")
STEP = ("step", "--recipes", "ptb-softmax,ptb-mos", *(part for setting in SETTINGS for part in ("--set", setting)))


def assert_files(folder, stem):
    assert (folder / f"{stem}.csv").exists()
    assert (folder / f"{stem}.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (folder / f"{stem}.svg").read_text()


def test_mos_nll_prints_the_rows_that_it_writes(tmp_path):
    done = highrank("bench", *TINY, "--json", "--device", "cpu", cwd=tmp_path)
    assert_files(tmp_path / "bench", "mos_nll_cpu")
    written = read_rows(tmp_path / "bench" / "mos_nll_cpu.csv", LossRow)
    printed = json.loads(done.stdout)
    assert [row["median_ms"] for row in printed] == [row.median_ms for row in written]


def test_all_runs_every_benchmark(tmp_path, monkeypatch):
    monkeypatch.setattr(mos_nll, "SIZES", {"ptb": (16, 3, 8, 60)})
    monkeypatch.setattr(mos_nll, "CPU_SWEEPS", {"K": (1, 2), "V": (50,), "N": (5,)})
    monkeypatch.setattr(lstm, "SHAPES", {"a": ((3, 4), 2)})
    monkeypatch.setattr(step, "CPU_CASES", ("pydoc-softmax",))
    monkeypatch.setattr(measure, "CPU_SECONDS", 1e-6)  # shorter than any call: each is still measured
    done = highrank("bench", "all", "--device", "cpu", "--rounds", 1, cwd=tmp_path)
    assert "highrank, chunked" in done.stdout
    rows = {"mos_nll": LossRow, "mos_nll_scaling": LossRow, "lstm": lstm.LSTMRow, "step": step.StepRow}
    for stem, row_type in rows.items():
        assert_files(tmp_path / "bench", f"{stem}_cpu")
        for row in read_rows(tmp_path / "bench" / f"{stem}_cpu.csv", row_type):
            assert row.median_ms or "ModuleNotFoundError" in row.status, row.status


@pytest.mark.parametrize(
    "arguments",
    [
        ("mos-nll", "--sizes", "pbt"),
        ("mos-nll", "--sizes", "8x0x4x9"),
        ("mos-nll", "--dtype", "float23"),
        ("mos-nll", "--device", "cuda:99"),
        ("step", "--recipes", "ptb-moss"),
        ("step", "--recipes", "ptb-mos", "--set", "train.bppt=3", "--device", "cpu"),
    ],
)
def test_a_mistake_gets_one_sentence(tmp_path, arguments):
    fails("bench", *arguments, cwd=tmp_path)


def test_steps_on_own_text_need_its_folder(tmp_path):
    assert "data.corpus" in fails("bench", "step", "--recipes", "small-mos", cwd=tmp_path)


def test_nothing_measured_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(mos_nll, "MAX_ERROR", 0.0)
    highrank("bench", *TINY, "--device", "cpu", cwd=tmp_path, check=2)


@pytest.mark.gpu
@pytest.mark.parametrize("command", [("mos-nll", "--sizes", "64x3x64x1000"), ("lstm",), STEP], ids=lambda it: it[0])
def test_on_a_gpu_ours_is_timed_in_a_graph(tmp_path, command):
    done = highrank("bench", *command, "--rounds", 2, "--json", "--device", "cuda", cwd=tmp_path)
    ours = [row for row in json.loads(done.stdout) if row.get("implementation", "highrank").startswith("highrank")]
    assert {row["status"] for row in ours} == {"ok"}
    assert all(row["how"] == step.FAST if command is STEP else row["graph_ms"] > 0 for row in ours)
