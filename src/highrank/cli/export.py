"""`highrank export` and `highrank import`: carry a run to another machine, or to transformers."""

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from highrank.cli.console import print_written, say
from highrank.cli.options import RunFolder, parse_bytes
from highrank.cli.train import resume_command


def export(
    run: RunFolder,
    output: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Folder for the export. Default: exports/RUN.")
    ] = None,
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"], typer.Option(help="Precision of the weights.")
    ] = "float16",
    max_shard_size: Annotated[str, typer.Option(metavar="SIZE", help="Largest file, such as 15MB.")] = "15MB",
    averages_only: Annotated[
        bool, typer.Option("--averages-only", help="Only the best weights (averages, once averaging has started).")
    ] = False,
    hf: Annotated[
        Path | None,
        typer.Option("--hf", metavar="FOLDER", help="Write a model for Hugging Face transformers here instead."),
    ] = None,
) -> None:
    """Write a run as small files to carry elsewhere; 'highrank import' turns them into a run again.

    With --hf, write a folder for AutoModelForCausalLM.from_pretrained, with a tokenizer and a model card.
    """
    import torch

    from highrank.runs.export import export_run
    from highrank.runs.folder import Run
    from highrank.runs.hf_export import export_hf

    if hf is not None:
        _print_size(hf, export_hf(Run(run), hf))
        say(
            "Load it in Python with:\n  import highrank.hf\n  from transformers import AutoModelForCausalLM\n"
            f"  AutoModelForCausalLM.from_pretrained({str(hf)!r})"
        )
        return
    output = output or Path("exports") / run.resolve().name
    files = export_run(Run(run), output, getattr(torch, dtype), parse_bytes(max_shard_size), averages_only)
    _print_size(output, files)
    say(f"Turn it into a run anywhere with:\n  highrank import {shlex.quote(str(output))}")


def _print_size(folder: Path, files: list[Path]) -> None:
    size = sum(file.stat().st_size for file in files)
    print_written((folder, f"{len(files)} files, {size / 1e6:.1f} MB"))


def import_(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder made by 'highrank export'.")],
    output: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="The run folder to make. Default: runs/FOLDER.")
    ] = None,
) -> None:
    """Make a run from an export. It can be resumed and evaluated."""
    from highrank.runs.export import import_run
    from highrank.runs.folder import Run

    output = output or Path("runs") / folder.resolve().name
    run = Run(output)
    state = import_run(folder, run)
    name = run.recipe().name
    print_written((output, f"{name} at epoch {state.epoch}"))
    say(f"Continue with:\n  {resume_command(name, output)}")
