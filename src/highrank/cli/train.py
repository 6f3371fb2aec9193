"""`highrank train`: train a recipe, or resume a run."""

import math
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from highrank.cli.console import note, out, print_written, say
from highrank.cli.options import DataDir, Device, complete_recipe, parse_seconds
from highrank.cli.signals import stop_on_signal

if TYPE_CHECKING:
    from highrank.data.corpus import Corpus
    from highrank.data.dialog import DialogCorpus
    from highrank.runs.launch import Launch
    from highrank.runs.record import RunRecord

LARGE_VOCABULARY = 50_000  # on a CPU, where the time of an update grows with it


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
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run from its last checkpoint.")] = False,
    init_from: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Start a new run with the best weights of another one.")
    ] = None,
    finetune: Annotated[
        bool,
        typer.Option("--finetune", help="With --resume: end the current stage and finetune the best weights now."),
    ] = False,
) -> None:
    """Train a language model or a dialog model by a recipe. Ctrl-C saves; --resume continues.

    Examples:

      highrank train pydoc-mos --max-epochs 3

      highrank train small-mos --set data.corpus=my-text

      highrank train ptb-mos --data-dir corpora --time-budget 25m

      highrank train ptb-mos --resume --finetune

      highrank train swda-mos --set data.corpus=my-dialogs

      torchrun --nproc-per-node 8 -m highrank train 1b-mos --data-dir corpora
    """
    from highrank.cli.training_progress import show_training
    from highrank.runs.launch import launching

    seconds = parse_seconds(time_budget) if time_budget else None
    with launching(
        recipe, settings or [], folder=output, data_dir=data_dir, device=device, resume=resume, init_from=init_from,
        finetune=finetune,
    ) as launch:  # fmt: skip
        run = launch.run
        corpus = launch.corpus
        ranks = launch.ranks
        on_cpu = launch.device.type == "cpu"
        out.quiet = not ranks.first
        if ranks.first:
            _announce(launch)
            default = run.folder.with_name(launch.recipe.name)
            if output is None and not resume and run.folder != default:
                note(f"{default} exists, so this is a new run; --resume would continue one.")
        with stop_on_signal() as signals, show_training(out, max_epochs, seconds, corpus.level, on_cpu) as callbacks:
            outcome = launch.train(
                graphs=graphs, callbacks=callbacks, max_epochs=max_epochs, time_budget=seconds,
                checkpoint_every=checkpoint_every, should_stop=lambda: bool(signals),
            )  # fmt: skip
    command = resume_command(launch.recipe.name, run.folder)
    if outcome == "interrupted":
        say(f"Stopped and saved. Continue with:\n  {command}")
        raise typer.Exit(0 if ranks.connected else 130)  # torchrun would report a failure
    if not ranks.first:
        return
    trained = launch.evaluate(outcome, lambda: say("evaluating the best weights on valid and test ..."))
    if trained.summary is None:
        say(f"Paused and saved before the end of the first epoch. Continue with:\n  {command}")
        return
    _print_scores(trained.summary, corpus)
    print_written(run.folder)
    if outcome != "finished":
        say(f"Paused ({outcome}). Continue with:\n  {command}")


def _announce(launch: "Launch") -> None:
    """Print what is trained: corpus, tokens, vocabulary, parameters and device; note what may go wrong."""
    from highrank.cli.data_make import note_unseen
    from highrank.data.corpus import Corpus
    from highrank.runs.training import count_parameters

    recipe = launch.recipe
    corpus = launch.corpus
    size = f"{len(corpus.splits['train']):,} training tokens" if isinstance(corpus, Corpus) else corpus.extent
    processes = f"{launch.ranks.size} processes, " if launch.ranks.size > 1 else ""
    say(
        f"{recipe.name} on {Path(corpus.name).name}: {size}, vocabulary {corpus.vocab_size:,}, "
        f"{count_parameters(recipe, corpus.vocab_size):,} parameters, {processes}{launch.device}, "
        f"in {launch.run.folder}"
    )
    if isinstance(corpus, Corpus):
        note_unseen(corpus)
    if launch.device.type == "cpu" and corpus.vocab_size > LARGE_VOCABULARY:
        note(
            f"A vocabulary of {corpus.vocab_size:,} is very slow on a CPU: use a GPU, or limit it with "
            "--max-vocab of 'highrank data make' or 'prepare'."
        )


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
    if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun started this process
        machines = os.environ["GROUP_WORLD_SIZE"]
        # Processes do not know where the machines meet.
        meeting = "" if machines == "1" else f"--nnodes {machines} --rdzv-backend c10d --rdzv-endpoint HOST:PORT "
        program = f"torchrun {meeting}--nproc-per-node {os.environ['LOCAL_WORLD_SIZE']} -m highrank"
    return f"{program} train {recipe} --out {shlex.quote(str(folder))} --resume"
