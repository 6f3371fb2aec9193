"""`highrank train`, `runs`, `export` and `import`: making runs, and carrying them about."""

import contextlib
import dataclasses
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table
from rich.text import Text

from highrank.cli.console import out, print_json, print_written, say
from highrank.cli.options import (
    AsJson,
    DataDir,
    Device,
    RunFolder,
    find_device,
    format_setting,
    parse_bytes,
    parse_seconds,
)
from highrank.errors import UserError

if TYPE_CHECKING:
    from highrank.runs.folder import Run


def train(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe's name; 'highrank recipes' shows them.")],
    data_dir: DataDir = None,
    output: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Run folder. Default: runs/RECIPE, numbered if taken."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a recipe value, e.g. train.lr=15. Repeatable."),
    ] = None,
    device: Device = "auto",
    max_epochs: Annotated[
        int | None, typer.Option(min=0, help="Pause after this many epochs in all. Default: the recipe's.")
    ] = None,
    time_budget: Annotated[
        str | None, typer.Option(metavar="TIME", help="Pause after this long from now: 90s, 25m, 2h. Default: never.")
    ] = None,
    checkpoint_every: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="Between checkpoints within an epoch.")
    ] = 120.0,
    graphs: Annotated[bool, typer.Option(help="Replay training steps as CUDA graphs, on an NVIDIA GPU.")] = True,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run where its last checkpoint is.")] = False,
    finetune: Annotated[
        bool,
        typer.Option(
            "--finetune",
            help="With --resume: finetune the best weights now, without waiting for validation to stop improving.",
        ),
    ] = False,
) -> None:
    """Train a model by a recipe: NT-ASGD, then finetuning. Ctrl-C saves; --resume continues.

    Examples:

      highrank train pydoc-mos --max-epochs 3

      highrank train ptb-mos --set data.corpus=my-folder --set data.level=char

      highrank train ptb-mos --data-dir corpora --time-budget 25m

      highrank train ptb-mos --resume --finetune
    """
    from highrank.cli.training_progress import watch
    from highrank.data.corpus import load_corpus
    from highrank.files import output_folder
    from highrank.recipes import get_recipe, override
    from highrank.runs.folder import Run, run_corpus
    from highrank.runs.record import summarize
    from highrank.training.loop import train as train_loop

    chosen = override(get_recipe(recipe), settings or [])
    run = Run(output) if output else _default_run(recipe, resume)
    seconds = parse_seconds(time_budget) if time_budget else None
    if finetune and not resume:
        raise UserError("--finetune goes on with a run that was trained before: add --resume, or leave it out.")
    where = find_device(device)
    if resume:
        stored = run.recipe()
        if settings or stored.name != chosen.name:
            _check_same_recipe(stored.resolved(), chosen.resolved(), run.folder, data_dir)
        chosen, corpus = stored, run_corpus(run.folder, data_dir)
    elif run.exists():
        raise UserError(f"{run.folder} already holds a run: add --resume to continue it, or choose another --out.")
    else:
        output_folder(run.folder)
        corpus = load_corpus(chosen.data.corpus, data_dir, chosen.data.level)
        # A folder of the user's own is remembered by its whole path, to be found from anywhere.
        chosen = dataclasses.replace(chosen, data=dataclasses.replace(chosen.data, corpus=corpus.name))

    say(f"{chosen.name} on {where}: {run.folder}")
    with _stop_on_signal() as stopped, watch(out, max_epochs, seconds) as listener:
        outcome = train_loop(
            chosen, corpus, run, where, resume=resume, finetune=finetune, data_dir=data_dir, max_epochs=max_epochs,
            time_budget=seconds, checkpoint_every=checkpoint_every, graphs=graphs, listener=listener,
            should_stop=lambda: bool(stopped),
        )  # fmt: skip
    again = _resume_command(chosen.name, run.folder)
    if outcome == "interrupted":
        say(f"Stopped and saved. Continue with:\n  {again}")
        raise typer.Exit(130)
    if not run.model_file.exists():
        say(f"Paused before the first epoch ended, and saved. Continue with:\n  {again}")
        return
    say("evaluating the best weights on valid and test ...")
    summary = summarize(run, corpus, where, outcome)
    say(
        f"{chosen.name}: valid {summary['valid_ppl']:.2f}, test {summary['test_ppl']:.2f} "
        f"(epoch {summary['best_epoch']} of {summary['epochs']}, {summary['parameters']:,} parameters)"
    )
    print_written(run.folder)
    if outcome != "finished":
        say(f"Paused ({outcome}). Continue with:\n  {again}")


def _resume_command(recipe: str, folder: Path) -> str:
    return f"highrank train {recipe} --out {shlex.quote(str(folder))} --resume"


def _default_run(recipe: str, resume: bool) -> "Run":
    from highrank.runs.folder import Run

    root = Path("runs")
    taken = sorted((p for p in root.glob(f"{recipe}*") if _belongs(p.name, recipe)), key=lambda p: p.stat().st_mtime)
    if resume:
        if not taken:
            raise UserError(
                f"there is no run of {recipe} in {root} to resume: name its folder with --out, or start one."
            )
        return Run(taken[-1])
    number = 1
    while (folder := root / (recipe if number == 1 else f"{recipe}-{number}")).exists():
        number += 1
    return Run(folder)


def _belongs(folder: str, recipe: str) -> bool:
    """runs/ptb-mos and runs/ptb-mos-2 are runs of ptb-mos; runs/ptb-mos-hparams is not."""
    rest = folder.removeprefix(recipe)
    return rest == "" or (rest.startswith("-") and rest[1:].isdigit())


def _check_same_recipe(stored: dict[str, Any], chosen: dict[str, Any], folder: Path, data_dir: Path | None) -> None:
    """One sentence for the first value in which a resumed run would differ from what it was started with."""
    from highrank.data.corpus import own_folder
    from highrank.recipes import flat

    if chosen["train"]["precision"] == "auto":
        chosen["train"]["precision"] = stored["train"]["precision"]  # decided when the run was started
    if own := own_folder(chosen["data"]["corpus"], data_dir):
        chosen["data"]["corpus"] = str(own)
    old, new = ({"name": recipe["name"], **flat(recipe)} for recipe in (stored, chosen))
    for key, value in old.items():
        if new[key] != value:
            raise UserError(
                f"{folder} was started with {key} = {format_setting(value)}, not {format_setting(new[key])}: resume it "
                "without changing the recipe, or start a new run."
            )


@contextlib.contextmanager
def _stop_on_signal() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM ask the loop to stop after the window at hand; a second Ctrl-C interrupts at once."""
    seen: list[int] = []

    def handle(number: int, frame: object) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(number)
        out.print("stopping after this window ...")

    old = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield seen
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def runs(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to look.")] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """List the runs in a folder with their recipe, epoch and perplexities."""
    from highrank.evaluation.perplexity import perplexity
    from highrank.runs import checkpoint
    from highrank.runs.folder import Run

    if folder.is_file() or (not folder.exists() and folder != Path("runs")):
        raise UserError(f"{folder} is not a folder: name one with runs in it.")
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.glob("**/run.json")):
        run = Run(path.parent)
        if run.is_export:
            continue
        row: dict[str, Any] = {"run": str(run.folder), "recipe": "?", "epoch": None, "best_valid_ppl": None}
        row |= {"valid_ppl": None, "test_ppl": None, "state": ""}
        try:
            row["recipe"] = run.recipe().name
            if run.checkpoint_file.exists():
                progress = checkpoint.load_progress(run.folder)
                row |= {"epoch": progress.epoch, "state": "finished" if progress.finished else "can resume"}
                if progress.best_valid is not None:
                    row["best_valid_ppl"] = perplexity(progress.best_valid)
            summary = run.summary()
            if summary and summary["epochs"] == row["epoch"]:  # else it tells of an earlier pause
                row |= {"valid_ppl": summary["valid_ppl"], "test_ppl": summary["test_ppl"]}
        except (UserError, KeyError) as error:
            row["state"] = f"damaged: {error}"
        rows.append(row)
    if as_json:
        print_json(rows)
        return
    if not rows:
        say(f"There are no runs in {folder}. Start one with 'highrank train pydoc-mos'.")
        return
    table = Table(box=None, padding=(0, 2, 0, 0))  # the usual one fits 80 columns
    for name in ("run", "recipe", "epoch", "best\nvalid", "valid", "test", "state"):
        justify: Literal["left", "right"] = "left" if name in ("run", "recipe", "state") else "right"
        table.add_column(name, justify=justify, overflow="fold")  # no name is ever cut
    for row in rows:
        numbers = (f"{row[k]:.2f}" if row[k] is not None else "-" for k in ("best_valid_ppl", "valid_ppl", "test_ppl"))
        cells = (row["run"], row["recipe"], str(row["epoch"] or "-"), *numbers, row["state"])
        table.add_row(*map(Text, cells))  # a folder's name is no markup
    out.print(table)
    out.print("\nbest valid: during training, in columns; valid, test: the best weights over the whole stream.")


def export(
    run: RunFolder,
    output: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Folder for the export. Default: exports/RUN.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float16",
    max_shard_size: Annotated[str, typer.Option(metavar="SIZE", help="Largest file, such as 15MB.")] = "15MB",
    averages_only: Annotated[
        bool, typer.Option("--averages-only", help="The best weights alone (averages, once averaging is on).")
    ] = False,
) -> None:
    """Write a run as small files that can be carried elsewhere; 'highrank import' goes on from them."""
    import torch

    from highrank.runs.export import export_run
    from highrank.runs.folder import Run

    if dtype not in ("float32", "bfloat16", "float16"):
        raise UserError(f'the dtype "{dtype}" is not known: choose float32, bfloat16 or float16.')
    output = output or Path("exports") / run.resolve().name
    files = export_run(Run(run), output, getattr(torch, dtype), parse_bytes(max_shard_size), averages_only)
    size = sum(file.stat().st_size for file in files)
    print_written((output, f"{len(files)} files, {size / 1e6:.1f} MB"))
    say(f"Make a run of it anywhere with:\n  highrank import {shlex.quote(str(output))}")


def import_(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder made by 'highrank export'.")],
    output: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="The run folder to make. Default: runs/FOLDER.")
    ] = None,
) -> None:
    """Make a run from an export; it can be resumed and evaluated."""
    from highrank.runs.export import import_run
    from highrank.runs.folder import Run

    output = output or Path("runs") / folder.resolve().name
    run = Run(output)
    progress = import_run(folder, run)
    name = run.recipe().name
    print_written((output, f"{name} at epoch {progress.epoch}"))
    say(f"Continue with:\n  {_resume_command(name, output)}")
