"""`highrank uptrain`: continue to train a pretrained model with a mixture, beside its softmax."""

from pathlib import Path
from typing import Annotated

import typer

from highrank.cli.console import print_table, print_written, progress
from highrank.cli.options import Device, parse_seconds
from highrank.device import find_device


def uptrain(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A folder with a Hugging Face model, or a hub name.")],
    text: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder with train.txt and valid.txt.")],
    components: Annotated[int, typer.Option(min=1, metavar="K", help="Softmaxes of the mixture; 1 for a control.")] = 4,
    time_budget: Annotated[
        str, typer.Option(metavar="TIME", help="Training time of both models together, such as 20m.")
    ] = "20m",
    steps: Annotated[int | None, typer.Option(min=1, help="Make this many steps, whatever the time budget.")] = None,
    lr: Annotated[float, typer.Option(min=0.0, help="Largest learning rate of AdamW.")] = 5e-5,
    batch_size: Annotated[int, typer.Option(min=1, metavar="N", help="Windows per step.")] = 8,
    context: Annotated[int, typer.Option(min=2, metavar="N", help="Tokens per window.")] = 512,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of the windows and of the mixture.")] = 0,
    output: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="New folder for the mixture, record and curves.")
    ] = Path("uptrained"),
    device: Device = "auto",
) -> None:
    """Give a Hugging Face model a mixture of softmaxes and train it on a folder of text.

    The mixture starts exactly equal to the model. The model with its softmax is trained for the same steps on the same
    text. A mixture also adds a layer: --components 1 shows how much of the difference is due to that layer alone. It
    needs pip install '.[hf]' in the clone.
    """
    from rich.table import Table

    from highrank.evaluation.score import format_perplexity, perplexity
    from highrank.hf.uptrain import UptrainSettings
    from highrank.plotting import save_figure
    from highrank.report.figures.uptrain import draw_uptraining
    from highrank.runs.uptrain import uptrain_both

    settings = UptrainSettings(components, lr, batch_size, context, seed)
    seconds = parse_seconds(time_budget)
    with progress() as on_stage:
        record = uptrain_both(
            model, text, output, settings, find_device(device), seconds=seconds, steps=steps, on_stage=on_stage
        )
    table = Table(title=f"{record.model}: {record.steps:,} steps of {batch_size * context:,} tokens")
    for name in ("head", "parameters", "valid loss", "after", "perplexity", "ms per step"):
        table.add_column(name, justify="left" if name == "head" else "right")
    for name, curve in ((record.mixture_name, record.mixture), ("softmax", record.softmax)):
        first, *_, last = curve.valid_nll
        table.add_row(
            name,
            f"{curve.parameters:,}",
            f"{first:.4f}",
            f"{last:.4f}",
            format_perplexity(perplexity(last)),
            f"{curve.seconds[-1] / record.steps * 1e3:.1f}",
        )
    print_table(table)
    figures = save_figure(draw_uptraining(record), [output / "uptrain.png", output / "uptrain.svg"])
    print_written(output, output / "uptrain.json", *figures)
