"""`highrank bench`: what the loss, the LSTM and whole training steps cost on this machine."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from highrank.cli.console import out, print_in_parts, print_json, print_written
from highrank.cli.options import AsJson, Device, find_device
from highrank.errors import UserError, nearest

if TYPE_CHECKING:
    import torch

    from highrank.bench.record import Record, Row

app = typer.Typer(
    help="Time the loss, the LSTM and training steps here, beside their peers: a table, a CSV and a plot.",
    short_help="What the loss, the LSTM and steps cost here.",
    no_args_is_help=True,
)
DTYPES = ("auto", "float32", "bfloat16", "float16")
PARTS = (("mos-nll",), ("step",), ("lstm",), ("mos-nll", "--scaling"))

Out = Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Folder for the CSV and the plot.")]
Rounds = Annotated[
    int | None, typer.Option(min=1, help="How often everything takes its turn. Default: 20 on a GPU, fewer on a CPU.")
]
Seconds = Annotated[
    float | None,
    typer.Option(min=0.0, metavar="S", help="Start no new measurement after this many seconds. Default: none."),
]
DEFAULT_OUT = Path("bench")


@app.command("mos-nll", short_help="The loss of a mixture of softmaxes, beside its peers.")
def mos_nll(
    sizes: Annotated[
        str | None, typer.Option(help="Of ptb, wt2, 1b, or NxKxDxV. Default: all on a GPU, ptb on a CPU.")
    ] = None,
    scaling: Annotated[bool, typer.Option("--scaling", help="Over K, V and N instead, beside one softmax.")] = False,
    device: Device = "auto",
    dtype: Annotated[
        str, typer.Option(help="auto (bfloat16 on a GPU, float32 on a CPU), float32, bfloat16 or float16.")
    ] = "auto",
    compiled: Annotated[bool, typer.Option("--compile", help="Also the naive way through torch.compile.")] = False,
    rounds: Rounds = None,
    seconds: Seconds = None,
    output: Out = DEFAULT_OUT,
    as_json: AsJson = False,
) -> None:
    """The loss of a mixture of softmaxes, forward and backward: ours, the naive way, and installed peers.

    Examples:

      highrank bench mos-nll --sizes ptb --out bench

      highrank bench mos-nll --scaling
    """
    from highrank.bench import mos_nll as losses
    from highrank.bench import scaling as scalings
    from highrank.bench.record import Record, machine_name
    from highrank.bench.table import loss_table, scaling_table
    from highrank.bench.timing import Clock
    from highrank.report.figures.benchmarks import draw_losses, draw_scaling

    where, kind = _prepare(device, output), _dtype(dtype, device)
    if scaling and (sizes or compiled):
        raise UserError("--scaling chooses its own sizes and peers: leave out --sizes and --compile.")
    chosen = losses.parse_sizes(sizes or ("ptb,wt2,1b" if where.type == "cuda" else "ptb"))
    rounds = rounds or (20 if where.type == "cuda" else 7)
    clock, say = Clock(seconds), _teller(where)
    if scaling:
        record = Record(output / f"mos_nll_scaling_{machine_name(where)}.csv")
        sweep = scalings.CUDA if where.type == "cuda" else scalings.CPU
        scalings.measure(record, sweep, where, kind, rounds=rounds, clock=clock, say=say)
        _finish(record, draw_scaling, scaling_table, as_json, "best_ms")
        return
    record = Record(output / f"mos_nll_{machine_name(where)}.csv")
    losses.measure(record, chosen, where, kind, rounds=rounds, compiled=compiled, clock=clock, say=say)
    _finish(record, draw_losses, loss_table, as_json)


@app.command(short_help="The recurrent layers, beside nn.LSTM.")
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
    """The recurrent layers, forward and backward: nn.LSTM, and ours padded to cuDNN's persistent kernel."""
    from highrank.bench import lstm as lstms
    from highrank.bench.record import Record, machine_name
    from highrank.bench.table import lstm_table
    from highrank.bench.timing import Clock
    from highrank.report.figures.benchmarks import draw_lstm

    where = _prepare(device, output)
    shapes = lstms.choose_shapes(layers, batch)
    rounds = rounds or (20 if where.type == "cuda" else 5)
    record = Record(output / f"lstm_{machine_name(where)}.csv")
    lstms.measure(record, shapes, where, length=length, rounds=rounds, clock=Clock(seconds), say=_teller(where))
    _finish(record, draw_lstm, lstm_table, as_json)


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
        str, typer.Option(help="fast (mixed precision, graphs), plain (float32, eager), both, or auto.")
    ] = "auto",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a recipe value. Repeatable.")
    ] = None,
    vocabulary: Annotated[int | None, typer.Option(min=2, help="Words. Default: the corpus's.")] = None,
    windows: Annotated[
        int | None, typer.Option(min=1, help="Windows that are timed. Default: 12 on a GPU, 5 on a CPU.")
    ] = None,
    device: Device = "auto",
    seconds: Seconds = None,
    output: Out = DEFAULT_OUT,
    as_json: AsJson = False,
) -> None:
    """Whole training updates on random words, and MoS over Softmax beside the paper's slowdowns."""
    from highrank.bench import step as steps
    from highrank.bench.record import Record, machine_name
    from highrank.bench.table import step_table
    from highrank.bench.timing import Clock
    from highrank.report.figures.benchmarks import draw_steps

    where = _prepare(device, output)
    ways = steps.parse_ways(how, where)
    cases = steps.parse_cases(recipes or ",".join(steps.CASES if where.type == "cuda" else steps.CPU_DEFAULT))
    record = Record(output / f"step_{machine_name(where)}.csv")
    windows = windows or (12 if where.type == "cuda" else 5)
    steps.measure(
        record,
        cases,
        ways,
        where,
        settings=settings or [],
        vocabulary=vocabulary,
        windows=windows,
        clock=Clock(seconds),
        say=_teller(where),
    )
    _finish(record, draw_steps, step_table, as_json)


@app.command("all", short_help="All of them with their defaults.")
def all_(
    device: Device = "auto",
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1.0, metavar="S", help="Time for all parts together; what does not fit is left out. Default: none."
        ),
    ] = None,
    output: Out = DEFAULT_OUT,
) -> None:
    """Every benchmark with its defaults, each in a process of its own: one that breaks does not stop the others."""
    from highrank.bench.parts import run_parts
    from highrank.files import output_folder

    output_folder(output)
    find_device(device)
    began = time.monotonic()
    failed = run_parts(PARTS, ["--device", device, "--out", str(output)], seconds, out.print)
    out.print(f"all done in {time.monotonic() - began:.0f} s")
    if output.exists():
        print_written(output)
    if failed:
        raise UserError(f"some benchmarks failed ({', '.join(failed)}): what they say is above.")


def _prepare(name: str, output: Path) -> "torch.device":
    import torch

    from highrank.files import output_folder

    output_folder(output)
    device = find_device(name)
    if device.type == "cuda":
        torch.cuda.init()  # memory can be counted from here on
        if device.index is not None:
            torch.cuda.set_device(device)
    return device


def _dtype(name: str, device: str) -> "torch.dtype":
    import torch

    if name not in DTYPES:
        raise UserError(f'there is no dtype "{name}" here{nearest(name, DTYPES)}')
    if name == "auto":
        name = "bfloat16" if find_device(device).type == "cuda" else "float32"
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def _teller(device: "torch.device") -> Callable[[str], None]:
    """Prints lines as they come, beside the table or the JSON; and warns when the machine is not ours alone."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if device.type == "cpu" and hasattr(os, "getloadavg") and os.getloadavg()[0] > 0.5:
        console.print(
            f"this machine is not idle (load {os.getloadavg()[0]:.1f}): times taken beside other work are too long"
        )
    return lambda text: console.print(escape(text))


def _finish(
    record: "Record",
    draw: "Callable[[Path, list[Row]], list[Path]]",
    table: "Callable[[list[Row]], Table]",
    as_json: bool,
    column: str = "median_ms",
) -> None:
    measured = [row for row in record.rows if row[column] is not None]
    files = [record.path, *(draw(record.path, record.rows) if measured else [])]
    if as_json:
        print_json(record.rows)
    else:
        made = table(record.rows)
        print_in_parts(
            made, repeat=sum(column.justify == "left" and column.header != "note" for column in made.columns)
        )
    print_written(*files, as_json=as_json)
    if not measured:
        raise UserError(f"nothing could be measured: {record.rows[0]['status']}.")
