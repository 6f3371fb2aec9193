"""The benchmarks as a user meets them, on sizes that take no time; no test looks at how long anything took."""

import csv
import json

import pytest
import torch

from helpers import fails, highrank
from highrank.bench import lstm, mos_nll, scaling, step, timing
from highrank.bench.peers import Implementation, implementations, make_inputs, naive
from highrank.bench.record import Record
from highrank.cli import bench
from highrank.plotting import pyplot
from highrank.report.figures import benchmarks as figure

TINY = "16x3x8x60"
COLUMNS = {"status", "median_ms", "q25_ms", "q75_ms", "highrank", "commit", "python", "torch", "machine", "started"}


@pytest.fixture
def no_child(monkeypatch):
    """A process for the memory takes seconds; a test of the peers waits for one."""
    monkeypatch.setattr(mos_nll, "cpu_extra_mib", lambda jobs, dtype: [1.0] * len(jobs))
    monkeypatch.setattr(scaling, "cpu_extra_mib", lambda jobs, dtype: [1.0] * len(jobs))


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def check_files(folder, stem, columns):
    rows = read(folder / f"{stem}.csv")
    assert rows
    assert rows[0].keys() >= COLUMNS | set(columns)
    assert (folder / f"{stem}.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (folder / f"{stem}.svg").read_text()
    return rows


def test_mos_nll_leaves_json_csv_and_a_plot(tmp_path, no_child):
    done = highrank("bench", "mos-nll", "--sizes", TINY, "--rounds", 2, "--json", "--device", "cpu", cwd=tmp_path)
    shown = json.loads(done.stdout)
    rows = check_files(tmp_path / "bench", "mos_nll_cpu", ["implementation", "extra_mib", "graph_ms", "times_ours"])
    assert [row["implementation"] for row in shown] == [row["implementation"] for row in rows]
    assert {"highrank, chunked", "naive"} <= {row["implementation"] for row in shown}
    for row in shown:
        assert row["status"] == "ok"
        assert (row["N"], row["K"], row["D"], row["V"]) == (16, 3, 8, 60)
        assert row["q25_ms"] <= row["median_ms"] <= row["q75_ms"]
        assert row["tflops"] == pytest.approx(3 * 2 * 16 * 3 * 8 * 60 / row["best_ms"] / 1e9)
        assert row["grad_error"] < 1e-3
        assert row["extra_mib"] == 1.0
    assert shown[0]["times_ours"] == 1.0
    assert "highrank, chunked" in done.stderr  # told as it goes


def test_a_table_says_where_everything_is(tmp_path, no_child):
    done = highrank("bench", "mos-nll", "--sizes", TINY, "--rounds", 1, "--out", "o", "--device", "cpu", cwd=tmp_path)
    assert "highrank, chunked" in done.stdout
    assert "Written to:\n  o/mos_nll_cpu.csv\n  o/mos_nll_cpu.png\n  o/mos_nll_cpu.svg\n" in done.stdout


def test_what_fails_is_reported_and_stops_nothing(tmp_path, monkeypatch, no_child):
    def absent():
        raise ImportError("no module named liger")

    def breaks(h, log_pi, w, b, y):
        raise RuntimeError("no kernel image\nmore")

    found = [
        Implementation("absent", absent, "liger-kernel"),
        Implementation("breaks", lambda: breaks, "torch"),
        Implementation("naive", lambda: naive, "torch", bytes_a_logit=12),
        Implementation("huge", lambda: naive, "torch", bytes_a_logit=10**12),
        *[
            one
            for one in mos_nll.implementations(torch.device("cpu"), torch.float32)
            if one.name.startswith("highrank")
        ],
    ]
    monkeypatch.setattr(mos_nll, "implementations", lambda *_: found)
    highrank("bench", "mos-nll", "--sizes", TINY, "--rounds", 1, "--device", "cpu", cwd=tmp_path)
    rows = {row["implementation"]: row for row in read(tmp_path / "bench" / "mos_nll_cpu.csv")}
    assert rows["absent"]["status"] == "failed: ImportError: no module named liger"
    assert rows["breaks"]["status"] == "failed: RuntimeError: no kernel image"
    assert rows["huge"]["status"].startswith("skipped: needs about")
    for name in ("absent", "breaks", "huge"):
        assert rows[name]["median_ms"] == rows[name]["times_ours"] == ""
    for name in ("naive", "highrank, chunked"):
        assert rows[name]["status"] == "ok"
        assert float(rows[name]["median_ms"]) > 0


def test_scaling_covers_its_ranges(tmp_path, monkeypatch, no_child):
    assert scaling.CUDA.over["K"][0] == scaling.CPU.over["K"][0] == 1
    assert scaling.CUDA.over["K"][-1] == scaling.CPU.over["K"][-1] == 64
    assert scaling.CUDA.over["V"][-1] == scaling.CPU.over["V"][-1] == 256_000
    monkeypatch.setattr(scaling, "CPU", scaling.Sweep((8, 3, 4, 50), {"K": (1, 2), "V": (20, 50), "N": (4, 8)}))
    done = highrank("bench", "mos-nll", "--scaling", "--rounds", 1, "--device", "cpu", cwd=tmp_path)
    columns = ["sweep", "ratio", "extra_mib", "softmax_ms", "softmax_mib", "cross_entropy_ms"]
    rows = check_files(tmp_path / "bench", "mos_nll_scaling_cpu", columns)
    shapes = [tuple(int(row[name]) for name in ("N", "K", "D", "V")) for row in rows]
    assert shapes == [(8, 1, 4, 50), (8, 2, 4, 50), (8, 3, 4, 20), (8, 3, 4, 50), (4, 3, 4, 50), (8, 3, 4, 50)]
    assert all(float(row["ratio"]) == float(row["best_ms"]) / float(row["softmax_ms"]) for row in rows)
    assert "s left" in done.stderr


def test_lstm(tmp_path):
    command = ("bench", "lstm", "--layers", "5-7-4", "--batch", 3, "--length", 4, "--rounds", 1, "--device", "cpu")
    done = highrank(*command, cwd=tmp_path)
    rows = check_files(tmp_path / "bench", "lstm_cpu", ["layers", "batch", "T", "times_ours"])
    assert [row["implementation"] for row in rows] == ["highrank, float32", "nn.LSTM, float32"]
    assert all(row["status"] == "ok" for row in rows)
    ours, torchs = (float(row["best_ms"]) for row in rows)
    assert [float(row["times_ours"]) for row in rows] == [1.0, torchs / ours]
    assert "5-7-4" in done.stdout


SMALL = [
    part
    for setting in ("model.embed_dim=6", "model.hidden_sizes=8,6", "train.batch_size=4", "train.bptt=5")
    for part in ("--set", setting)
]


def test_step_compares_with_its_softmax(tmp_path):
    names = "pydoc-softmax,pydoc-mos"
    done = highrank(
        *("bench", "step", "--recipes", names, *SMALL, "--vocabulary", 30, "--windows", 2, "--json", "--device", "cpu"),
        cwd=tmp_path,
    )
    softmax, mos = json.loads(done.stdout)
    check_files(tmp_path / "bench", "step_cpu", ["recipe", "batch", "precision", "graphs", "peak_mib", "slowdown"])
    assert softmax["slowdown"] == 1.0
    assert mos["slowdown"] == pytest.approx(mos["median_ms"] / softmax["median_ms"])
    assert mos["tokens_per_second"] == pytest.approx(4 * 5 / mos["median_ms"] * 1e3)
    assert (mos["precision"], mos["graphs"], mos["vocabulary"]) == ("float32", False, 30)


def test_the_papers_table_of_slowdowns():
    """Its values, and the sizes of its models for the 1B corpus, by their numbers of parameters."""
    cells = {(case.column, case.name): case.paper for case in step.CASES.values() if case.paper and case.paper != 1}
    assert cells == {
        ("PTB/bs", "ptb-mos-5"): 1.2, ("PTB/bs", "ptb-mos-10"): 1.6, ("PTB/bs", "ptb-mos"): 1.9,
        ("WT2/bs", "wt2-mos-5"): 1.3, ("WT2/bs", "wt2-mos-10"): 1.9, ("WT2/bs", "wt2-mos"): 2.5,
        ("1B/bs", "1b-mos"): 3.8, ("PTB/best-1", "ptb-mos-best"): 2.8, ("WT2/best-1", "wt2-mos-best"): 6.4,
    }  # fmt: skip
    from highrank.models import build_model

    with torch.device("meta"):
        millions = {
            name: round(build_model(recipe.model, step.BILLION_VOCABULARY).n_parameters() / 1e6)
            for name, recipe in step.BENCH_ONLY.items()
        }
    assert millions == {"1b-mos": 113, "1b-softmax": 119}
    for name, case in step.CASES.items():
        mine, softmax = (
            step._recipe(c, step.PLAIN, torch.device("cpu"), []).train for c in (case, step.CASES[case.softmax])
        )
        if not name.endswith("-best"):
            assert (mine.batch_size, mine.bptt) == (softmax.batch_size, softmax.bptt)
        assert mine.micro_batch_size is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("mos-nll", "--sizes", "pbt"), 'there is no size "pbt" (NxKxDxV works too); did you mean "ptb"?'),
        (("mos-nll", "--sizes", "8x0x4x9"), 'there is no size "8x0x4x9"'),
        (("mos-nll", "--sizes", ","), "no sizes were named"),
        (("mos-nll", "--dtype", "float23"), 'there is no dtype "float23" here; did you mean "float32"?'),
        (("mos-nll", "--scaling", "--sizes", "ptb"), "--scaling chooses its own sizes"),
        (("mos-nll", "--device", "cuda:99"), 'the device "cuda:99" is not available here'),
        (("mos-nll", "--sizes", TINY, "--seconds", "0"), "nothing could be measured: skipped: out of time."),
        (("lstm", "--layers", "12"), '"12" are not layers'),
        (("lstm", "--layers", "5-0"), '"5-0" are not layers'),
        (("step", "--recipes", "ptb-moss"), 'there is no recipe called "ptb-moss"; did you mean "ptb-mos"?'),
        (("step", "--recipes", ","), "no recipes were named"),
        (("step", "--how", "quick"), 'there is no way "quick"'),
        (("step", "--how", "fast"), "need an NVIDIA GPU"),
        (("step", "--recipes", "pydoc-mos", "--set", "train.bppt=3"), 'did you mean "train.bptt"?'),
    ],
)
def test_mistakes_get_one_sentence(tmp_path, arguments, sentence, no_child, monkeypatch):
    monkeypatch.setattr(bench, "_teller", lambda device: lambda text: None)
    device = () if "--device" in arguments else ("--device", "cpu")
    assert sentence in fails("bench", *arguments, *device, cwd=tmp_path)


def test_all_goes_on_when_a_part_breaks(tmp_path, monkeypatch):
    small = ("lstm", "--layers", "3-4", "--batch", "2", "--length", "2", "--rounds", "1")
    monkeypatch.setattr(bench, "PARTS", (("nonsense",), small))
    done = highrank("bench", "all", "--device", "cpu", "--seconds", 60, cwd=tmp_path, check=2)
    assert "some benchmarks failed (nonsense)" in done.stderr
    assert read(tmp_path / "bench" / "lstm_cpu.csv")[0]["status"] == "ok"


@pytest.fixture
def pretend_gpu(monkeypatch):
    """The road of a GPU with a CPU underneath: calls are real, graphs and the device's memory are made up."""
    cpu = torch.device("cpu")
    for module in (mos_nll, scaling, lstm):
        monkeypatch.setattr(module, "origin", lambda device: {"machine": "none"})
        monkeypatch.setattr(module, "release", lambda device: None)
        monkeypatch.setattr(
            module, "in_turns", lambda calls, device, *rest, **named: timing.in_turns(calls, cpu, *rest)
        )
        monkeypatch.setattr(module, "graphed", lambda call, *rest, **named: timing.Timing(*[1e-9] * 5, 3))
    for module in (mos_nll, scaling):
        monkeypatch.setattr(module, "cuda_extra_mib", lambda loss, inputs: 7.0)
        monkeypatch.setattr(module, "make_inputs", lambda shape, device, dtype: make_inputs(shape, cpu, dtype))
    monkeypatch.setattr(mos_nll, "_memory", lambda losses, inputs, shape: dict.fromkeys(losses, 7.0))
    monkeypatch.setattr(mos_nll, "errors", lambda loss, shape, device, dtype: (0.0, 0.0))
    monkeypatch.setattr(mos_nll, "matrix_ceiling", lambda dtype, device: (8, 1.0))
    monkeypatch.setattr(mos_nll, "available_bytes", lambda device: None)
    monkeypatch.setattr(mos_nll, "implementations", lambda device, *rest: implementations(cpu, *rest))
    monkeypatch.setattr(mos_nll, "busy_ms", lambda call, device: 2e-9)
    making = lstm._implementations(torch.device("cuda"))
    monkeypatch.setattr(
        lstm, "_implementations", lambda device: {name: lambda *a, m=m: m(*a[:3], cpu) for name, m in making.items()}
    )
    return torch.device("cuda")


@pytest.mark.skipif(not hasattr(torch.nn.functional, "linear_cross_entropy"), reason="the peer is in torch >= 2.13")
def test_the_rows_of_a_gpu(tmp_path, pretend_gpu):
    told: list[str] = []
    common = {"rounds": 1, "clock": timing.Clock(None), "say": told.append}
    record = Record(tmp_path / "loss.csv")
    mos_nll.measure(record, mos_nll.parse_sizes(f"{TINY},8x2x4x30"), pretend_gpu, torch.float32, **common)
    rows = {row["implementation"]: row for row in record.rows if row["size"] == TINY}
    ours, peer = rows["highrank, chunked"], rows["linear_cross_entropy"]
    assert (ours["graph_ms"], ours["best_ms"], ours["busy_ms"]) == (1e-9, 1e-9, 2e-9)
    assert peer["graph_ms"] is None
    assert peer["times_ours"] == peer["median_ms"] / 1e-9
    assert peer["busy_times_ours"] == 1.0
    assert len(read(record.path)) == len(record.rows) == 2 * len(rows)
    assert read(record.path)[0]["busy_ms"] == "2e-09"
    figure.draw_losses(tmp_path / "loss", record.rows)

    record = Record(tmp_path / "scaling.csv")
    scaling.measure(record, scaling.Sweep((4, 2, 4, 9), {"K": (1, 2)}), pretend_gpu, torch.float32, **common)
    assert [(row["graph_ms"], row["ratio"], row["extra_mib"], row["softmax_mib"]) for row in record.rows] == [
        (1e-9, 1.0, 7.0, 7.0)
    ] * 2
    figure.draw_scaling(tmp_path / "scaling", record.rows)

    record = Record(tmp_path / "lstm.csv")
    lstm.measure(record, [("ptb", "4-5", 2)], pretend_gpu, length=3, **common)
    names = ["highrank, float16, padded", "nn.LSTM, float32", "nn.LSTM, float16"]
    assert [row["implementation"] for row in record.rows] == names
    assert all(row["graph_ms"] == 1e-9 for row in record.rows if row["status"] == "ok")
    figure.draw_lstm(tmp_path / "lstm", record.rows)
    assert any("in a graph" in line for line in told)


@pytest.mark.parametrize(("name", "chosen"), [("cuda", []), ("cuda:1", [torch.device("cuda:1")])])
def test_a_gpu_with_a_number_becomes_the_current_one(monkeypatch, tmp_path, name, chosen):
    """torch refuses to choose a device without a number."""
    asked = []
    monkeypatch.setattr(bench, "find_device", torch.device)
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "set_device", asked.append)
    assert bench._prepare(name, tmp_path) == torch.device(name)
    assert asked == chosen


@pytest.mark.gpu
def test_on_a_gpu_ours_is_timed_in_a_graph_too(tmp_path):
    commands = {
        "mos_nll": ("mos-nll", "--sizes", "64x3x64x1000", "--rounds", 2),
        "lstm": ("lstm", "--layers", "128-128", "--batch", 8, "--length", 5, "--rounds", 2),
        "step": ("step", "--recipes", "pydoc-softmax,pydoc-mos", *SMALL, "--windows", 2, "--how", "both"),
    }
    for stem, command in commands.items():
        done = highrank("bench", *command, "--json", "--device", "cuda", cwd=tmp_path)
        rows = json.loads(done.stdout)
        (path,) = (tmp_path / "bench").glob(f"{stem}_*.csv")
        assert len(read(path)) == len(rows)
        for row in rows:
            if stem == "step" or row["implementation"].startswith(("highrank", "naive", "nn.LSTM")):
                assert row["status"] == "ok", row
                assert stem == "step" or row["graph_ms"] > 0
            assert stem != "step" or row["peak_mib"] > 0


def test_lstm_shapes_are_the_papers_unless_others_are_asked_for():
    assert lstm.choose_shapes(None, None) == [
        ("ptb", "280-960-960-620", 12),
        ("ptb", "280-960-960-620", 16),
        ("wt2", "300-1150-1150-650", 15),
    ]
    assert lstm.choose_shapes(None, 8) == [("ptb", "280-960-960-620", 8), ("wt2", "300-1150-1150-650", 8)]
    assert lstm.choose_shapes("5-7", None) == [("custom", "5-7", 12)]
    assert lstm.choose_shapes("5-7", 3) == [("custom", "5-7", 3)]


def test_ways_to_run_a_step():
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    both, fast = step.CASES["ptb-mos"], step.CASES["ptb-moc"]
    ways = {how: step.parse_ways(how, cuda) for how in ("auto", "fast", "plain", "both")}
    assert {how: (way(both), way(fast)) for how, way in ways.items()} == {
        "auto": ([step.FAST, step.PLAIN], [step.FAST]),
        "fast": ([step.FAST], [step.FAST]),
        "plain": ([step.PLAIN], [step.PLAIN]),
        "both": ([step.FAST, step.PLAIN], [step.FAST, step.PLAIN]),
    }
    assert step.parse_ways("auto", cpu)(both) == step.parse_ways("plain", cpu)(both) == [step.PLAIN]


@pytest.mark.parametrize(
    ("value", "text"), [(3.5, "3.50"), (0.648, "0.648"), (21.15, "21.1"), (99.96, "100"), (1911.2, "1,911")]
)
def test_bars_say_three_digits(value, text):
    plot, axis = pyplot().subplots()
    figure._bar(axis, 0, {"ms": value, "q25_ms": value, "q75_ms": value}, "ms", "red", 0.5)
    assert [note.get_text() for note in axis.texts] == [text]
    pyplot().close(plot)
