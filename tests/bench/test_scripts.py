"""The benchmarks at sizes that take no time; no test looks at how long anything took."""

import csv
import importlib
import math
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import lstm
import measure
import mos_nll
import mos_nll_figure
import peers
import rank
import sampled_speed
import step
import step_parts
import together
from helpers import PROCESS_TIMEOUT, write_toy_corpus
from highrank.plotting import pyplot
from highrank.recipes import get_recipe, override
from highrank.report.paper import SLOWDOWN
from highrank.runs import checkpoint as checkpoints
from highrank.runs.folder import Run
from peers import Implementation, naive

ROOT = Path(__file__).parents[2]
SCRIPTS = [path for path in sorted((ROOT / "benchmarks").glob("*.py")) if "parse_args()" in path.read_text()]
ORIGIN = {"highrank", "commit", "python", "torch", "machine", "started"}
TIMES = {"status", "median_ms", "q25_ms", "q75_ms", "rounds"}
TINY = ("--sizes", "16x3x8x60")
SMALL = ("model.embed_dim=6", "model.hidden_sizes=8,6", "train.batch_size=4", "train.bptt=5")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a function that runs a script as from a shell, and returns the rows of its CSV file."""
    monkeypatch.setattr(measure, "CPU_SECONDS", 1e-6)  # shorter than any call: each is still measured
    file = tmp_path / "a.csv"

    def run_script(script, *arguments, rounds=("--rounds", 1), device="cpu"):
        options = [*arguments, *rounds, "--device", device, "--csv", file]
        monkeypatch.setattr(sys, "argv", [script.__name__, *map(str, options)])
        script.main()
        with open(file, newline="") as opened:
            return list(csv.DictReader(opened))

    return run_script


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_every_script_has_help(path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [path.name, "--help"])
    with pytest.raises(SystemExit) as exited:
        runpy.run_path(str(path), run_name="__main__")
    assert exited.value.code == 0
    assert "usage" in capsys.readouterr().out


# --- the loss -------------------------------------------------------------------------------------------------------


def test_the_loss_is_measured_beside_the_naive_one(run):
    rows = {row["implementation"]: row for row in run(mos_nll, *TINY)}
    for name in ("highrank, chunked", "naive"):
        row = rows[name]
        columns = {"size", "implementation", *"NKDV", "dtype", "device", "version", "graph_ms", "best_ms"}
        assert columns | TIMES | ORIGIN | {"extra_mib", "error", "times_ours"} == set(row)
        assert (row["status"], row["size"], row["K"], row["dtype"]) == ("ok", "16x3x8x60", "3", "float32")
        assert float(row["error"]) < 1e-3
    best = {name: float(row["best_ms"]) for name, row in rows.items() if row["best_ms"]}
    assert float(rows["naive"]["times_ours"]) == pytest.approx(best["naive"] / best["highrank, chunked"])


def test_scaling_compares_a_mixture_with_one_softmax(run, monkeypatch):
    monkeypatch.setattr(mos_nll, "CPU_SWEEPS", {"K": (2,), "V": (50,)})
    rows = run(mos_nll, "--scaling")
    assert [(row["size"], row["N"], row["K"], row["V"], row["status"]) for row in rows] == [
        ("K=2", "64", "2", "10000", "ok"), ("K=2", "64", "1", "10000", "ok"), ("K=2", "64", "1", "10000", "ok"),
        ("V=50", "64", "15", "50", "ok"), ("V=50", "64", "1", "50", "ok"), ("V=50", "64", "1", "50", "ok"),
    ]  # fmt: skip


def test_a_mixture_of_a_large_model_is_measured_beside_its_softmax(run):
    rows = run(mos_nll, "--llm", "--sizes", "16x2x8x60,16x4x8x60")
    assert [(row["K"], row["status"]) for row in rows] == [("1", "ok"), ("1", "ok"), ("2", "ok"), ("4", "ok")]


@pytest.mark.parametrize(
    ("reason", "one"),
    [
        ("ArithmeticError", Implementation("dw", lambda: lambda h, p, w, b, y: naive(h, p, 2 * w - w.detach(), b, y))),
        ("ArithmeticError", Implementation("NaN", lambda: lambda *inputs: naive(*inputs) * math.nan)),
        ("ModuleNotFoundError", Implementation("absent", lambda: importlib.import_module("absent"))),
    ],
    ids=lambda value: getattr(value, "name", None),
)  # fmt: skip
def test_a_wrong_or_absent_peer_is_not_timed(run, monkeypatch, reason, one):
    monkeypatch.setattr(peers, "IMPLEMENTATIONS", [one])
    (row,) = run(mos_nll, *TINY)
    assert row["status"].startswith(f"failed: {reason}")
    assert not row.get("median_ms")


def test_a_peer_that_needs_more_memory_than_is_free_is_not_timed(run, monkeypatch):
    monkeypatch.setattr(mos_nll, "BYTES_PER_LOGIT", 10**12)
    status = {row["implementation"]: row["status"] for row in run(mos_nll, *TINY)}
    assert status["naive"].startswith("failed: UserError")
    assert status["highrank, chunked"] == "ok"


def test_sizes_are_names_or_numbers():
    assert mos_nll.parse_sizes("ptb, 8x2x4x9") == {"ptb": (840, 15, 280, 10_000), "8x2x4x9": (8, 2, 4, 9)}
    for wrong in ("pbt", "8x0x4x9", "8x2x4"):
        with pytest.raises(ValueError, match="is not a size"):
            mos_nll.parse_sizes(wrong)


@pytest.mark.parametrize("name", ["mos_nll_h200", "mos_nll_scaling_h200"])
def test_the_figures_of_the_documentation_can_be_drawn(name):
    rows = mos_nll_figure.read_rows(ROOT / "results" / "benchmarks" / f"{name}.csv")
    figure = (mos_nll_figure.draw_scaling if "scaling" in name else mos_nll_figure.draw_sizes)(rows)
    assert len(figure.axes) == 6
    assert all(axis.patches or axis.lines or axis.collections for axis in figure.axes)
    pyplot().close(figure)


# --- the LSTM and training steps ------------------------------------------------------------------------------------


def test_lstm_layers_are_measured_beside_torchs(run, monkeypatch):
    monkeypatch.setattr(lstm, "SHAPES", {"a": ((5, 7, 4), 3, 9)})
    ours, torchs = run(lstm)
    assert {"size", "implementation", "layers", "batch", "T", "device", "graph_ms", "best_ms", "times_ours"} < set(ours)
    assert set(ours) > TIMES | ORIGIN
    assert (ours["status"], torchs["status"], ours["layers"]) == ("ok", "ok", "5-7-4")


@pytest.mark.parametrize("averaging", ["nt-asgd", "two-tailed"])
def test_a_step_is_compared_with_its_softmax(run, averaging):
    settings = ("--set", *SMALL, f"train.averaging={averaging}")
    softmax, mos = run(step, "--recipes", "ptb-softmax,ptb-mos", *settings)
    columns = {"recipe", "settings", "how", "batch", "bptt", "K", "vocabulary", "device", "tokens_per_second"}
    assert columns | TIMES | ORIGIN < set(mos)
    assert (softmax["status"], mos["status"], mos["vocabulary"], mos["how"]) == ("ok", "ok", "10000", step.PLAIN)
    assert float(mos["slowdown"]) == pytest.approx(float(mos["median_ms"]) / float(softmax["median_ms"]))
    assert (mos["paper_column"], mos["paper_slowdown"]) == ("PTB/bs", "1.9")


def test_steps_average_as_in_training(run, monkeypatch):
    seen = []
    monkeypatch.setattr("highrank.training.step.Step.__call__", lambda self, *_: seen.append(self.optimizer.averaging))
    run(step, "--recipes", "ptb-softmax,1b-softmax", "--set", *SMALL, rounds=("--rounds", 4))
    assert seen == [True] * 5 + [False] * 5  # one of five warms up


def test_the_cases_are_those_of_the_papers_table():
    recipes = {name: override(get_recipe(case.recipe), list(case.settings)) for name, case in step.CASES.items()}
    mixtures = {(recipes[name].model.n_components, case.column) for name, case in step.CASES.items() if case.column}
    assert {(k, column) for k, row in SLOWDOWN.items() for column in row} == {one for one in mixtures if one[0] > 1}
    same = [name for name in step.CASES if not name.endswith("-best")]  # those have their own best settings
    windows = {name: (recipe.train.batch_size, recipe.train.bptt) for name, recipe in recipes.items()}
    assert [windows[name] for name in same] == [windows[step.CASES[name].softmax] for name in same]


def test_the_sampled_backward_pass_is_timed_in_the_loss_and_in_steps(run, monkeypatch):
    monkeypatch.setattr(sampled_speed, "EPS", (None, 0.25))
    monkeypatch.setattr(sampled_speed, "get_recipe", lambda name: override(get_recipe(name), list(SMALL)))
    rows = run(sampled_speed, *TINY, "--recipes", "ptb-mos")
    assert [(row["what"], row["eps"]) for row in rows] == [
        ("loss", ""), ("loss", "0.25"), ("step", ""), ("step", "0.25"),
    ]  # fmt: skip
    assert all(float(row["median_ms"]) > 0 for row in rows)


def test_the_parts_of_a_step_are_timed(monkeypatch):
    monkeypatch.setattr(measure, "CPU_SECONDS", 1e-6)
    rows = step_parts.measure("ptb-mos", [*SMALL, "train.precision=float32"], 50, torch.device("cpu"), 1)
    assert [row["part"] for row in rows] == ["step", "update", "embedding, dense", "embedding, rows", "layers", "loss"]


def test_an_analysis_is_timed(run, monkeypatch):
    monkeypatch.setattr(rank, "VOCABULARY", 50)
    monkeypatch.setattr(rank, "get_recipe", lambda name: override(get_recipe(name), list(SMALL)))
    (row,) = run(rank, "--recipes", "ptb-softmax", "--tokens", 100, rounds=())
    assert (row["tokens"], row["vocabulary"]) == ("100", "50")


# --- several trainings at once --------------------------------------------------------------------------------------


def test_models_train_together_until_a_signal_and_the_same_command_continues(tmp_path):
    write_toy_corpus(tmp_path / "corpora" / "toy")
    line = " ".join(["ptb-mos", "data.corpus=corpora/toy", "train.patience=1000", *SMALL])
    run = Run(tmp_path / "out" / together.run_name(line))
    command = [sys.executable, together.__file__, line, "ptb-moss", "--out", "out", "--export", "--time-budget"]

    first = subprocess.Popen([*command, "1h"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while not run.folder.exists() or run.model_file is None:
        assert first.poll() is None
        time.sleep(0.05)
    first.send_signal(signal.SIGTERM)
    _, errors = first.communicate(timeout=PROCESS_TIMEOUT)
    assert errors.splitlines()[-1].endswith(": ptb-moss")
    for folder in ("records", "exports"):
        (result,) = (tmp_path / "out" / folder).iterdir()
        assert result.name.startswith(run.folder.name)

    options = ["1h", "--max-epochs", str(len(run.epochs()) + 1)]
    subprocess.run([*command, *options], cwd=tmp_path, stderr=subprocess.PIPE, timeout=PROCESS_TIMEOUT, check=False)
    assert [piece.outcome for piece in checkpoints.read(run.folder).pieces] == ["interrupted", "max-epochs"]


def test_the_name_of_a_run_is_one_folder():
    assert together.run_name("ptb-mos data.corpus=my/text train.lr=15") == "ptb-mos-corpus-my-text-lr-15"


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("script", "arguments"),
    [(mos_nll, ("--sizes", "64x3x64x1000")), (lstm, ()), (step, ("--recipes", "ptb-softmax,ptb-mos", "--set", *SMALL))],
)
def test_on_a_gpu_ours_is_timed_in_a_graph(run, script, arguments):
    rows = run(script, *arguments, device="cuda")
    ours = [row for row in rows if row.get("implementation", "highrank").startswith("highrank")]
    assert {row["status"] for row in ours} == {"ok"}
    assert all(row["how"] == step.FAST if script is step else float(row["graph_ms"]) > 0 for row in ours)
