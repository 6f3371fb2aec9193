"""`highrank bench`: what the loss, the LSTM and whole training steps cost on this machine."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from highrank.cli.console import note, print_in_parts, print_json, print_written, progress, say
from highrank.cli.options import AsJson, Device, find_device
from highrank.errors import UserError

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure

    from highrank.bench.benchmark import Benchmark, T

app = typer.Typer(
    help="Time the loss, the LSTM and training steps here, next to their peers: a table, a CSV file and a figure.",
    short_help="What the loss, the LSTM and steps cost here.",
    no_args_is_help=True,
)
PARTS = (("mos-nll",), ("step",), ("lstm",), ("mos-nll", "--scaling"))  # of `highrank bench all`

Out = Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Folder for the CSV file and the figure.")]
Rounds = Annotated[int | None, typer.Option(min=1, help="Measurements per row. Default: 20 on a GPU, 5 on a CPU.")]
Seconds = Annotated[
    float | None,
    typer.Option(min=0.0, metavar="S", help="Start no new measurement after this many seconds. Default: no limit."),
]
DEFAULT_OUT = Path("bench")

# The columns that a table shows: heading -> field and format.
LOSS = {"size": "size", "implementation": "implementation", "ms": "median_ms:,.2f", "25 %": "q25_ms:,.2f",
        "75 %": "q75_ms:,.2f", "graph": "graph_ms:,.2f", "x ours": "times_ours:.2f", "eager": "eager_times_ours:.2f",
        "TFLOP/s": "tflops:,.3g", "ceiling": "ceiling_tflops:,.3g", "extra MiB": "extra_mib:,.0f",
        "error": "grad_error:.0e"}  # fmt: skip
SCALING = {"sweep": "sweep", "N": "N:,", "K": "K", "V": "V:,", "ms": "best_ms:,.2f", "one softmax": "softmax_ms:,.2f",
           "ratio": "ratio:.2f", "torch's softmax": "cross_entropy_ms:,.2f", "extra MiB": "extra_mib:,.1f",
           "one softmax, MiB": "softmax_mib:,.1f"}  # fmt: skip
LSTM = {"layers": "layers", "implementation": "implementation", "batch": "batch", "ms": "median_ms:,.2f",
        "25 %": "q25_ms:,.2f", "75 %": "q75_ms:,.2f", "graph": "graph_ms:,.2f", "x ours": "times_ours:.2f"}  # fmt: skip
STEP = {"recipe": "recipe", "how": "how", "batch": "batch", "K": "K", "ms": "median_ms:,.2f", "25 %": "q25_ms:,.2f",
        "75 %": "q75_ms:,.2f", "words/s": "tokens_per_second:,.0f", "peak MiB": "peak_mib:,.0f",
        "x softmax": "slowdown:.2f", "paper": "paper_slowdown:.3g"}  # fmt: skip


@app.command("mos-nll", short_help="The loss of a mixture of softmaxes, next to its peers.")
def mos_nll(
    sizes: Annotated[
        str | None, typer.Option(help="Of ptb, wt2, 1b, or NxKxDxV. Default: all on a GPU, ptb on a CPU.")
    ] = None,
    scaling: Annotated[bool, typer.Option("--scaling", help="Vary K, V and N instead, next to one softmax.")] = False,
    device: Device = "auto",
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        typer.Option(help="Of the inputs: float32, bfloat16, float16, or auto (bfloat16 on a GPU, float32 on a CPU)."),
    ] = "auto",
    compiled: Annotated[bool, typer.Option("--compile", help="Add the naive computation with torch.compile.")] = False,
    rounds: Rounds = None,
    seconds: Seconds = None,
    output: Out = DEFAULT_OUT,
    as_json: AsJson = False,
) -> None:
    """Time the loss of a mixture of softmaxes, forward and backward: ours, the naive one, and installed peers.

    Examples:

      highrank bench mos-nll --sizes ptb --out bench

      highrank bench mos-nll --scaling
    """
    import torch

    from highrank.bench import mos_nll as losses
    from highrank.bench import scaling as sweeps
    from highrank.bench.peers import missing_peers
    from highrank.report.figures.benchmarks import loss_figure, scaling_figure

    place = _prepare(device, output)
    cuda = place.type == "cuda"
    kind: torch.dtype = getattr(torch, ("bfloat16" if cuda else "float32") if dtype == "auto" else dtype)
    if scaling:
        points = sweeps.CUDA if cuda else sweeps.CPU
        sweep = sweeps.scaling_benchmark(points, place, kind, _rounds(rounds, place))
        _run(sweep, place, seconds, output, as_json, SCALING, scaling_figure)
        return
    shapes = losses.parse_sizes(sizes or ("ptb,wt2,1b" if cuda else "ptb"))
    if absent := missing_peers(place):
        note(f"Not installed, so left out: {', '.join(absent)}.")
    benchmark = losses.loss_benchmark(shapes, place, kind, _rounds(rounds, place), compiled)
    _run(benchmark, place, seconds, output, as_json, LOSS, loss_figure)


@app.command(short_help="The recurrent layers, next to nn.LSTM.")
def lstm(
    layers: Annotated[
        str | None, typer.Option(help="Inputs and hidden units, as in 280-960-960-620. Default: the paper's.")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Columns. Default: the paper's, and 16.")] = None,
    length: Annotated[int, typer.Option(min=1, help="Time steps.")] = 70,
    device: Device = "auto",
    rounds: Rounds = None,
    seconds: Seconds = None,
    output: Out = DEFAULT_OUT,
    as_json: AsJson = False,
) -> None:
    """Time the recurrent layers, forward and backward: nn.LSTM, and ours padded to cuDNN's persistent kernel."""
    from highrank.bench.lstm import choose_shapes, lstm_benchmark
    from highrank.report.figures.benchmarks import lstm_figure

    place = _prepare(device, output)
    benchmark = lstm_benchmark(choose_shapes(layers, batch, length), place, _rounds(rounds, place))
    _run(benchmark, place, seconds, output, as_json, LSTM, lstm_figure)


@app.command(short_help="Whole training steps, MoS over Softmax.")
def step(
    recipes: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Separated by commas; 1b-mos and 1b-softmax too. Default: the paper's table of slowdowns.",
        ),
    ] = None,
    how: Annotated[
        Literal["auto", "fast", "plain", "both"],
        typer.Option(help="fast (mixed precision, graphs), plain (float32, eager), both, or auto."),
    ] = "auto",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a recipe value. Repeatable.")
    ] = None,
    vocabulary: Annotated[int | None, typer.Option(min=2, help="Words. Default: the corpus's.")] = None,
    device: Device = "auto",
    rounds: Rounds = None,
    seconds: Seconds = None,
    output: Out = DEFAULT_OUT,
    as_json: AsJson = False,
) -> None:
    """Time whole training updates on random words, and compare MoS over Softmax with the paper's slowdowns."""
    from highrank.bench.step import CASES, CPU_CASES, parse_cases, step_benchmark
    from highrank.report.figures.benchmarks import step_figure

    place = _prepare(device, output)
    cases = parse_cases(recipes or ",".join(CASES if place.type == "cuda" else CPU_CASES))
    benchmark = step_benchmark(
        cases, place, _rounds(rounds, place), how=how, settings=settings or [], vocabulary=vocabulary
    )
    _run(benchmark, place, seconds, output, as_json, STEP, step_figure)


@app.command("all", short_help="All of them with their defaults.")
def all_(device: Device = "auto", seconds: Seconds = None, output: Out = DEFAULT_OUT) -> None:
    """Run every benchmark with its defaults, each in its own process: one that fails does not stop the others."""
    _prepare(device, output)
    deadline = _deadline(seconds)
    failed = []
    for i, part in enumerate(PARTS):
        command = [sys.executable, "-m", "highrank", "bench", *part, "--device", device, "--out", str(output)]
        if seconds is not None:  # the remaining parts share the remaining time
            command += ["--seconds", f"{max(deadline - time.monotonic(), 0) / (len(PARTS) - i):.0f}"]
        say(" ".join(("highrank bench", *part)), style="bold")
        if subprocess.run(command, check=False).returncode:
            failed.append(" ".join(part))
    if failed:
        raise UserError(f"Some benchmarks failed ({', '.join(failed)}); their messages are above.")


def _prepare(device: str, output: Path) -> "torch.device":
    """Check the output folder and the device, and select the device for libraries that use the current one."""
    import torch

    from highrank.files import output_folder

    output_folder(output)
    place = find_device(device)
    if place.type == "cuda":
        torch.cuda.set_device(place.index or 0)
    return place


def _rounds(rounds: int | None, device: "torch.device") -> int:
    return rounds or (20 if device.type == "cuda" else 5)


def _deadline(seconds: float | None) -> float:
    return float("inf") if seconds is None else time.monotonic() + seconds


def _run(
    benchmark: "Benchmark[T]",
    device: "torch.device",
    seconds: float | None,
    output: Path,
    as_json: bool,
    columns: dict[str, str],
    draw: "Callable[[list[T]], Figure]",
) -> None:
    """Run a benchmark, print its rows as a table or as JSON, and save a figure of them next to the CSV file."""
    from highrank.bench.benchmark import run_benchmark
    from highrank.bench.table import to_columns
    from highrank.plotting import save_figure

    if device.type == "cpu" and hasattr(os, "getloadavg") and os.getloadavg()[0] > 0.5:
        note(f"This machine is busy (load {os.getloadavg()[0]:.1f}): the times will be too long.")
    with progress() as on_stage:
        on_progress = partial(on_stage, f"bench {benchmark.name}")
        table = run_benchmark(benchmark, output, device, _deadline(seconds), on_progress)
    files = [table.path]
    measured = [row for row in table.rows if row.median_ms is not None]
    if measured:
        files += save_figure(draw(measured), [table.path.with_suffix(".png"), table.path.with_suffix(".svg")])
    rows = [to_columns(row) for row in table.rows]
    if as_json:
        print_json(rows)
    else:
        _print_table(rows, columns)
    print_written(*files, as_json=as_json)
    if not measured:
        raise UserError(f"Nothing could be measured: {rows[0]['status']}.")


def _print_table(rows: list[dict[str, object]], columns: dict[str, str]) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=str(rows[0]["machine"]), title_justify="left")
    cells = []
    names = 0  # leading columns of text, repeated where the table continues
    for heading, spec in columns.items():
        field, _, shape = spec.partition(":")
        text = isinstance(rows[0][field], str)
        names += text
        table.add_column(heading, justify="left" if text else "right", no_wrap=True)
        cells.append(["-" if row[field] is None else escape(format(row[field], shape)) for row in rows])
    table.add_column("note")
    cells.append(["" if row["status"] == "ok" else escape(str(row["status"])) for row in rows])
    for line in zip(*cells, strict=True):
        table.add_row(*line)
    print_in_parts(table, repeat=names)
