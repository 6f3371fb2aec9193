"""What the tables of the benchmarks say of a row."""

import pytest
from rich.console import Console

from highrank.bench import table

TIMED = {"status": "ok", "machine": "a machine", "median_ms": 2.5, "q25_ms": 2.25, "q75_ms": 1234.5, "graph_ms": None}
FAILED = {"status": "failed: [mps] is missing", "median_ms": None, "q25_ms": None, "q75_ms": None}


def cells(made, row=0):
    """The row as it is printed, by column."""
    console = Console(width=400)
    texts = [[console.render_str(cell).plain for cell in column.cells] for column in made.columns]
    return dict(zip([column.header for column in made.columns], [text[row] for text in texts], strict=True))


def test_losses():
    sizes = {"size": "ptb", "dtype": "float32", "implementation": "naive", "busy_ms": 1.0, "ceiling_tflops": 50.0}
    row = TIMED | sizes | {"times_ours": 2.0, "eager_times_ours": 1.5, "tflops": 5.0, "extra_mib": 2048.4}
    failed = row | FAILED | {"tflops": None, "times_ours": None, "grad_error": None}
    made = table.loss_table([row | {"grad_error": 1.2e-7}, failed, row | {"tflops": 25.4, "grad_error": 0.0}])
    assert made.title == "mos_nll, forward and backward, float32, a machine"
    assert cells(made) == {
        "size": "ptb", "implementation": "naive", "ms": "2.50", "quartiles": "2.25 to 1,234", "graph": "-",
        "kernels": "1.00", "x ours": "2.00", "eager": "1.50", "TFLOP/s": "5.000", "ceiling": "10%",
        "extra MiB": "2,048", "error": "1e-07", "note": "",
    }  # fmt: skip
    assert cells(made, 1) | {"note": "failed: [mps] is missing", "error": "-", "ceiling": "-"} == cells(made, 1)
    assert (cells(made, 2)["TFLOP/s"], cells(made, 2)["error"]) == ("25", "0e+00")


def test_scaling():
    row = {"sweep": "V", "N": 840, "K": 15, "D": 280, "V": 64_000, "dtype": "bfloat16", "best_ms": 9.0, "ratio": 4.5}
    row |= {"softmax_ms": 2.0, "cross_entropy_ms": 3.0, "extra_mib": 60.25, "softmax_mib": None}
    made = table.scaling_table([TIMED | row])
    assert made.title == "mos_nll over K, V and N, D=280, bfloat16, a machine"
    assert cells(made) == {
        "sweep": "V", "N": "840", "K": "15", "V": "64,000", "ms": "9.00", "one softmax": "2.00", "ratio": "4.50",
        "torch's softmax": "3.00", "extra MiB": "60.2", "one softmax, MiB": "-", "note": "",
    }  # fmt: skip


def test_lstm():
    row = TIMED | {"layers": "5-7", "implementation": "nn.LSTM", "batch": 12, "T": 70, "times_ours": 3.0}
    made = table.lstm_table([row | {"graph_ms": 1.5}])
    assert made.title == "LSTM layers, 70 steps, forward and backward, a machine"
    assert cells(made) == {
        "layers": "5-7", "implementation": "nn.LSTM", "batch": "12", "ms": "2.50", "quartiles": "2.25 to 1,234",
        "graph": "1.50", "x ours": "3.00", "note": "",
    }  # fmt: skip


@pytest.mark.parametrize(("paper", "shown"), [(1.9, "1.9x PTB/bs"), (None, "-")])
def test_steps(paper, shown):
    row = TIMED | {"recipe": "ptb-mos", "how": "float32, eager", "batch": 12, "K": 15, "tokens_per_second": 41234.5}
    row |= {"peak_mib": 512.4, "slowdown": 1.75, "paper_slowdown": paper, "paper_column": "PTB/bs"}
    made = table.step_table([row])
    assert made.title == "whole training steps, a machine"
    assert cells(made) == {
        "recipe": "ptb-mos", "how": "float32, eager", "batch": "12", "K": "15", "ms": "2.50",
        "quartiles": "2.25 to 1,234", "words/s": "41,234", "peak MiB": "512", "x softmax": "1.75", "paper": shown,
        "note": "",
    }  # fmt: skip
