"""`highrank bench`: what the loss, the LSTM and whole training steps cost on this machine."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape
from rich.table import Table

from highrank.cli.console import print_in_parts, print_json, print_written, progress
from highrank.cli.options import AsJson, Device
from highrank.device import find_device
from highrank.errors import UserError

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure

    from highrank.bench.table import Benchmark, T

app = typer.Typer(
    help="Time the loss, the LSTM and training steps here, next to their peers: a table, a CSV file and a figure.",
    no_args_is_help=True,
)
Rounds = Annotated[int | None, typer.Option(min=1, help="Measurements per row. Default: 20 on a GPU, 5 on a CPU.")]
Out = Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Folder for the CSV file and the figure.")]
DEFAULT_OUT = Path("bench")


@app.command("mos-nll", short_help="The loss of a mixture of softmaxes, next to its peers.")
def mos_nll(
    sizes: Annotated[str | None, typer.Option(help="Of ptb, wt2, 1b, or NxKxDxV. Default on a CPU: ptb.")] = None,
    scaling: Annotated[bool, typer.Option("--scaling", help="Vary K, V and N instead, next to one softmax.")] = False,
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"], typer.Option(help="auto: bfloat16 on a GPU, else float32.")
    ] = "auto",
    device: Device = "auto",
    rounds: Rounds = None,
    output: Out = DEFAULT_OUT,
    as_json: AsJson = False,
) -> None:
    """Time the loss of a mixture of softmaxes, forward and backward: ours, the naive one, and installed peers."""
    from highrank.bench.mos_nll import loss_benchmark, scaling_benchmark
    from highrank.report.figures.benchmarks import call_figure, scaling_figure

    prepare = partial(scaling_benchmark, dtype) if scaling else partial(loss_benchmark, sizes, dtype)
    _run(prepare, scaling_figure if scaling else call_figure, device, rounds, output, as_json)


@app.command(short_help="The recurrent layers, next to nn.LSTM.")
def lstm(device: Device = "auto", rounds: Rounds = None, output: Out = DEFAULT_OUT, as_json: AsJson = False) -> None:
    """Time the recurrent layers, forward and backward: nn.LSTM, and ours padded to cuDNN's persistent kernel."""
    from highrank.bench.lstm import lstm_benchmark
    from highrank.report.figures.benchmarks import call_figure

    _run(lstm_benchmark, call_figure, device, rounds, output, as_json)


@app.command(short_help="Whole training steps, MoS over Softmax.")
def step(
    recipes: Annotated[
        str | None, typer.Option(metavar="NAMES", help="With commas between. Default: the paper's table of slowdowns.")
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="float32 without CUDA graphs, as on a CPU.")] = False,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Repeatable.")] = None,
    device: Device = "auto",
    rounds: Rounds = None,
    output: Out = DEFAULT_OUT,
    as_json: AsJson = False,
) -> None:
    """Time whole training updates on random words, and compare MoS over Softmax with the paper's slowdowns."""
    from highrank.bench.step import step_benchmark
    from highrank.report.figures.benchmarks import step_figure

    _run(partial(step_benchmark, recipes, plain, settings or []), step_figure, device, rounds, output, as_json)


@app.command("all", short_help="All of them with their defaults.")
def all_(device: Device = "auto", rounds: Rounds = None, output: Out = DEFAULT_OUT) -> None:
    """Run every benchmark with its defaults."""
    mos_nll(device=device, rounds=rounds, output=output)
    step(device=device, rounds=rounds, output=output)
    lstm(device=device, rounds=rounds, output=output)
    mos_nll(scaling=True, device=device, rounds=rounds, output=output)


def _run(
    prepare: "Callable[[torch.device, int], Benchmark[T]]", draw: "Callable[[list[T]], Figure]", device: str,
    rounds: int | None, output: Path, as_json: bool,
) -> None:  # fmt: skip
    """Run a benchmark, print its rows as a table or as JSON, and save a figure of them next to the CSV file."""
    import torch

    from highrank.bench.table import run_benchmark, to_columns
    from highrank.files import output_folder
    from highrank.plotting import save_figure

    output_folder(output)
    torch_device = find_device(device)
    on_gpu = torch_device.type == "cuda"
    machine = "cpu"
    if on_gpu:
        torch.cuda.set_device(torch_device.index or 0)  # for libraries that use the current device
        machine = re.sub(r"\W+", "_", torch.cuda.get_device_name().removeprefix("NVIDIA ")).lower()
    benchmark = prepare(torch_device, rounds or (20 if on_gpu else 5))
    path = output / f"{benchmark.name}_{machine}.csv"
    with progress() as on_stage:
        rows = run_benchmark(benchmark, path, partial(on_stage, f"bench {benchmark.name}"))
    measured = [row for row in rows if row.median_ms is not None]
    if not measured:
        raise UserError(f"Nothing could be measured: {rows[0].status}.")
    files = [path, *save_figure(draw(measured), [path.with_suffix(".png"), path.with_suffix(".svg")])]
    if as_json:
        print_json([to_columns(row) for row in rows])
    else:
        print_in_parts(_table(rows), repeat=2)
    print_written(*files, as_json=as_json)


def _table(rows: "list[T]") -> Table:
    """Return the columns that a terminal has room for."""
    table = Table(title=rows[0].machine, title_justify="left")
    for name in rows[0].shown:
        table.add_column(name, justify="left" if isinstance(getattr(rows[0], name), str) else "right")
    for row in rows:
        table.add_row(*(_cell(getattr(row, name)) for name in row.shown))
    return table


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return "-" if value is None else escape(str(value))
