"""`highrank train`: train a recipe, or resume a run."""

import contextlib
import math
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from highrank.cli.console import out, print_written, say
from highrank.cli.options import DataDir, Device, format_setting, parse_seconds
from highrank.device import find_device
from highrank.errors import UserError

if TYPE_CHECKING:
    from highrank.data.corpus import Corpus
    from highrank.data.dialog import DialogCorpus
    from highrank.recipes import AnyRecipe
    from highrank.runs.folder import Run


def train(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe's name; 'highrank recipes' lists them.")],
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
    from highrank.data.corpus import Corpus
    from highrank.evaluation.score import format_score
    from highrank.recipes import get_recipe, override
    from highrank.runs.folder import Run, load_data, run_data
    from highrank.runs.record import summarize
    from highrank.runs.training import train as train_run
    from highrank.training.ranks import joined, rank_device

    chosen = override(get_recipe(recipe), settings or [])
    seconds = parse_seconds(time_budget) if time_budget else None
    torch_device = rank_device(find_device(device))
    if finetune and not resume:
        raise UserError("--finetune continues an existing run: add --resume.")
    if init_from and resume:
        raise UserError("--init-from starts a new run: leave out --resume.")
    with joined(torch_device) as ranks:
        out.quiet = not ranks.first
        run = ranks.broadcast(Run(output) if output else _default_run(recipe, resume))
        if resume:
            stored = run.recipe()
            if settings or stored.name != chosen.name:
                _check_same_recipe(stored, chosen, settings or [], run.folder, data_dir)
            chosen = stored
            corpus = run_data(run.folder, data_dir)
        else:
            if ranks.first:
                _check_new(run)
            corpus = load_data(chosen, data_dir)
            # The name of a user's own corpus is its absolute path, so that later commands find it from any folder.
            chosen = override(chosen, [f"data.corpus={corpus.name}"])
            if isinstance(corpus, Corpus):  # a folder with a tokenizer has a level of its own
                chosen = override(chosen, [f"data.level={corpus.level}"])

        if ranks.first:
            processes = f"{ranks.size} processes, " if ranks.size > 1 else ""
            _announce(chosen, corpus, f"{processes}{torch_device}", run.folder)
        on_cpu = torch_device.type == "cpu"
        with _stop_on_signal() as signals, show_training(out, max_epochs, seconds, corpus.level, on_cpu) as callbacks:
            outcome = train_run(
                chosen, corpus, run, torch_device, resume=resume, init_from=init_from, finetune=finetune,
                data_dir=data_dir, max_epochs=max_epochs, time_budget=seconds, checkpoint_every=checkpoint_every,
                graphs=graphs, callbacks=callbacks, should_stop=lambda: bool(signals), ranks=ranks,
            )  # fmt: skip
    command = resume_command(chosen.name, run.folder)
    if outcome == "interrupted":
        say(f"Stopped and saved. Continue with:\n  {command}")
        raise typer.Exit(0 if ranks.connected else 130)  # torchrun would report a failure
    if not ranks.first:
        return
    if run.model_file is None:
        say(f"Paused and saved before the end of the first epoch. Continue with:\n  {command}")
        return
    say("evaluating the best weights on valid and test ...")
    summary = summarize(run, corpus, torch_device, outcome)
    bits = corpus.bits_per_byte("test", math.log(summary.test_ppl)) if isinstance(corpus, Corpus) else None
    per_byte = "" if bits is None else f" ({bits:.3f} bits per byte)"
    say(
        f"{chosen.name}: valid {format_score(summary.valid_ppl, corpus.level)}, "
        f"test {format_score(summary.test_ppl, corpus.level)}{per_byte} "
        f"(epoch {summary.best_epoch} of {summary.epochs}, {summary.parameters:,} parameters)"
    )
    print_written(run.folder)
    if outcome != "finished":
        say(f"Paused ({outcome}). Continue with:\n  {command}")


def _announce(recipe: "AnyRecipe", corpus: "Corpus | DialogCorpus", device: str, folder: Path) -> None:
    """Print what is trained: corpus, tokens, vocabulary, parameters and device."""
    from highrank.cli.data_make import note_unseen
    from highrank.data.corpus import Corpus
    from highrank.runs.training import count_parameters

    size = f"{len(corpus.splits['train']):,} training tokens" if isinstance(corpus, Corpus) else corpus.extent
    say(
        f"{recipe.name} on {Path(corpus.name).name}: {size}, vocabulary {corpus.vocab_size:,}, "
        f"{count_parameters(recipe, corpus.vocab_size):,} parameters, {device}, in {folder}"
    )
    if isinstance(corpus, Corpus):
        note_unseen(corpus)


def _check_new(run: "Run") -> None:
    """Raise a UserError if the folder of a new run cannot be made, or holds a run already."""
    from highrank.files import output_folder

    if run.exists():
        raise UserError(f"{run.folder} already holds a run: add --resume to continue it, or choose another --out.")
    output_folder(run.folder)


def resume_command(recipe: str, folder: Path) -> str:
    """Return the command that continues a run."""
    return f"highrank train {recipe} --out {shlex.quote(str(folder))} --resume"


def _default_run(recipe: str, resume: bool) -> "Run":
    """Return the most recent run of a recipe in runs/, to resume it, or else the next free folder there."""
    from highrank.files import unused_folder
    from highrank.runs.folder import Run

    root = Path("runs")
    taken = [path for path in root.glob(f"{recipe}*") if _is_run_name(path.name, recipe)]
    if resume:
        if not taken:
            raise UserError(f"there is no run of {recipe} in {root} to resume: name its folder with --out.")
        return Run(max(taken, key=lambda path: path.stat().st_mtime))
    return Run(unused_folder(root / recipe))


def _is_run_name(folder: str, recipe: str) -> bool:
    """Return True for ptb-mos and ptb-mos-2, but not ptb-mos-hparams, if the recipe is ptb-mos."""
    rest = folder.removeprefix(recipe)
    return rest == "" or (rest.startswith("-") and rest[1:].isdigit())


def _check_same_recipe(
    stored: "AnyRecipe", chosen: "AnyRecipe", settings: list[str], folder: Path, data_dir: Path | None
) -> None:
    """Raise a UserError that names the recipe, or those of `settings`, that differ from what the run started with.

    Settings that are not given again stay as they were.
    """
    from highrank.data.corpus import own_folder
    from highrank.recipes import DialogRecipe, flat

    if chosen.name != stored.name:
        raise UserError(f"{folder} is a run of {stored.name}, not of {chosen.name}: name {stored.name} to resume it.")
    old = flat(stored.resolved())
    new = flat(chosen.resolved())
    suffix = ".jsonl" if isinstance(chosen, DialogRecipe) else ".txt"
    if own := own_folder(new["data.corpus"], data_dir, suffix):
        new["data.corpus"] = str(own)
    if new["train.precision"] == "auto":
        new["train.precision"] = old["train.precision"]  # chosen when the run started
    given = dict.fromkeys(setting.partition("=")[0] for setting in settings)
    changes = [
        f"{key} = {format_setting(old[key])}, not {format_setting(new[key])}" for key in given if new[key] != old[key]
    ]
    if changes:
        raise UserError(
            f"{folder} was started with {'; '.join(changes)}: resume it without changes, or start a new run."
        )


@contextlib.contextmanager
def _stop_on_signal() -> Iterator[list[int]]:
    """Collect signals in a list, so that training saves and stops. A second Ctrl-C interrupts at once.

    Ctrl-C sends SIGINT, schedulers send SIGTERM, and a terminal that closes sends SIGHUP.
    """
    signals: list[int] = []

    def handle(number: int, frame: object) -> None:
        if signals and number == signal.SIGINT:
            raise KeyboardInterrupt
        signals.append(number)
        try:
            # rich imports its table of emoji at the first use; the signal may have arrived during that import
            out.print("stopping soon ...", markup=False, emoji=False)
        except OSError:  # the terminal is gone: later output must not fail either, or nothing would be saved
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for stream in (sys.stdout, sys.stderr):
                os.dup2(nowhere, stream.fileno())

    names = ("SIGINT", "SIGTERM", "SIGHUP")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]  # Windows has no SIGHUP
    numbers = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]  # as nohup asks for
    handlers = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield signals
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
