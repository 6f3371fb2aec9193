"""`highrank train`: train a recipe, or resume a run."""

import math
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from highrank.cli.console import print_written, say
from highrank.cli.options import DataDir, Device, complete_recipe, parse_seconds

if TYPE_CHECKING:
    from highrank.data.corpus import Corpus
    from highrank.data.dialog import DialogCorpus
    from highrank.runs.record import RunRecord


def train(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE", help="A recipe's name; 'highrank recipes' lists them.", autocompletion=complete_recipe
        ),
    ],
    data_dir: DataDir = None,
    output: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Run folder. Default: runs/RECIPE, numbered if it exists."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a recipe value, e.g. train.lr=15. Repeatable."),
    ] = None,
    device: Device = "auto",
    max_epochs: Annotated[
        int | None, typer.Option(min=0, help="Pause when the run has this many epochs. Default: the recipe's.")
    ] = None,
    time_budget: Annotated[
        str | None, typer.Option(metavar="TIME", help="Pause after this time: 90s, 25m, 2h. Default: no limit.")
    ] = None,
    checkpoint_every: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="Time between checkpoints within an epoch.")
    ] = 120.0,
    graphs: Annotated[bool, typer.Option(help="Run training steps as CUDA graphs on an NVIDIA GPU.")] = True,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue the run in --out, or the latest one of the recipe, where it stopped."),
    ] = False,
    init_from: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Start a new run with the best weights of another one.")
    ] = None,
    finetune: Annotated[
        bool,
        typer.Option("--finetune", help="With --resume: end the current stage and finetune the best weights now."),
    ] = False,
) -> None:
    """Train a language model or a dialog model from a recipe. Ctrl-C saves; --resume continues.

    Examples:

      highrank train pydoc-mos --max-epochs 3

      highrank train small-mos --set data.corpus=my-text

      highrank train ptb-mos --data-dir corpora --time-budget 25m

      highrank train ptb-mos --resume --finetune

      highrank train swda-mos --set data.corpus=my-dialogs

      torchrun --nproc-per-node 8 -m highrank train 1b-mos --data-dir corpora
    """
    from highrank.cli.training_display import TrainingDisplay
    from highrank.runs.launch import train_recipe

    seconds = parse_seconds(time_budget) if time_budget else None
    display = TrainingDisplay(max_epochs, seconds, is_new_default=output is None and not resume)
    trained = train_recipe(
        recipe, settings=settings, out=output, data_dir=data_dir, device=device, max_epochs=max_epochs,
        time_budget=seconds, checkpoint_every=checkpoint_every, graphs=graphs, resume=resume, init_from=init_from,
        finetune=finetune, callbacks=display, should_stop=display.should_stop,
    )  # fmt: skip
    command = resume_command(recipe, trained.folder)
    if trained.outcome == "interrupted":
        say(f"Stopped and saved. Continue with:\n  {command}")
        raise typer.Exit(0 if _has_torchrun() else 130)  # torchrun would report a failure
    if trained.summary is None:
        say(f"Paused and saved before the end of the first epoch. Continue with:\n  {command}")
        return
    _print_scores(trained.summary, display.setup.corpus)
    print_written(trained.folder)
    if trained.outcome != "finished":
        say(f"Paused ({trained.outcome}). Continue with:\n  {command}")


def _print_scores(summary: "RunRecord", corpus: "Corpus | DialogCorpus") -> None:
    """Print the scores of the best weights on validation and test."""
    from highrank.data.corpus import Corpus
    from highrank.evaluation.score import format_score

    bits = corpus.bits_per_byte("test", math.log(summary.test_ppl)) if isinstance(corpus, Corpus) else None
    per_byte = "" if bits is None else f" ({bits:.3f} bits per byte)"
    say(
        f"{summary.recipe}: valid {format_score(summary.valid_ppl, corpus.level)}, "
        f"test {format_score(summary.test_ppl, corpus.level)}{per_byte} "
        f"(epoch {summary.best_epoch} of {summary.epochs}, {summary.parameters:,} parameters)"
    )


def resume_command(recipe: str, folder: Path) -> str:
    """Return the command that continues a run, with as many processes as train it now."""
    program = "highrank"
    if _has_torchrun():
        machines = os.environ["GROUP_WORLD_SIZE"]
        # Processes do not know where the machines meet.
        meeting = "" if machines == "1" else f"--nnodes {machines} --rdzv-backend c10d --rdzv-endpoint HOST:PORT "
        program = f"torchrun {meeting}--nproc-per-node {os.environ['LOCAL_WORLD_SIZE']} -m highrank"
    return f"{program} train {recipe} --out {shlex.quote(str(folder))} --resume"


def _has_torchrun() -> bool:
    """Return whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ
