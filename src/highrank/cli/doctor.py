"""`highrank doctor`: what the output layer of a model can and cannot express."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from highrank.cli.console import out, print_json, print_table, print_written, progress
from highrank.cli.options import AsJson, Device


def doctor(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A run, a folder with a Hugging Face model, or a hub name.")
    ],
    text: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also read this UTF-8 text, and look at the predictions.")
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="N",
            help="Read at most this many tokens of the text. Default: 20,000 on a CPU, all on a GPU; fewer for a "
            "mixture over more than 46,340 tokens.",
        ),
    ] = None,
    precision: Annotated[
        Literal["float64", "float32", "stored"] | None,
        typer.Option(help="Precision of a Hugging Face model. Default: float64 with --text, else as it is stored."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Folder for doctor.json and the figure.")
    ] = Path("doctor"),
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Report what the output layer of a model can and cannot express.

    From the weights: rank, spectrum and norms of the output matrix, and the tokens that can never be the most likely
    one. With --text: rank and pairwise KLD of the predictions, and how much of the loss gradient passes through the
    output layer. It needs pip install '.[doctor]' in the clone, and '.[hf]' for Hugging Face models. docs/doctor.md
    explains each number.
    """
    from rich.table import Table

    from highrank.files import output_folder, write_json
    from highrank.plotting import save_figure
    from highrank.report.doctor import reading, table_rows
    from highrank.report.figures.doctor import draw_diagnosis
    from highrank.runs.doctor import diagnose
    from highrank.schema import to_json

    output_folder(output)
    with progress() as on_stage:
        record = diagnose(model, text, tokens=tokens, precision=precision, device=device, on_stage=on_stage)
    write_json(output / "doctor.json", to_json(record))
    figures = save_figure(draw_diagnosis(record), [output / "doctor.png", output / "doctor.svg"], dpi=150)
    if as_json:
        print_json(to_json(record))
    else:
        table = Table(title=record.model, show_header=False)
        for row in table_rows(record):
            table.add_row(*row)
        print_table(table)
        out.print("\n\n".join(reading(record)))
    print_written(output / "doctor.json", *figures, as_json=as_json)
