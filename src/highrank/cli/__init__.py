"""The command line: one file per command. An error prints one sentence and exits with code 2, without a traceback."""

import os
import sys
from typing import Annotated, Any, NoReturn

import typer

from highrank._version import __version__
from highrank.cli import (
    analyze,
    chat,
    compare,
    data,
    doctor,
    evaluate,
    explore,
    export,
    generate,
    quickstart,
    recipes,
    record,
    report,
    runs,
    theory,
    train,
    uptrain,
)
from highrank.errors import UserError

UsageError: Any = typer.BadParameter.__base__  # typer exports BadParameter, but not its parent class

app = typer.Typer(
    help="Language models that break the softmax bottleneck (Yang et al., ICLR 2018).\n\n"
    "Start with 'highrank quickstart': it needs no data and a minute on a CPU.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command in sys.argv and turn every expected error into one sentence and an exit code."""
    # OpenMP threads wait for each other by spinning, this many times; libgomp reads the variable when torch is
    # imported. Its default makes small models thirty times slower on a busy machine; a short spin costs an idle machine
    # little (docs/performance.md).
    os.environ.setdefault("GOMP_SPINCOUNT", "600")
    os.environ.setdefault("MPLBACKEND", "Agg")  # commands write figures to files, and need no display
    if "_HIGHRANK_COMPLETE" in os.environ:  # set by the shell when Tab is pressed
        app(prog_name="highrank")
    command = typer.main.get_command(app)
    try:
        with command.make_context("highrank", sys.argv[1:]) as context:
            command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except UsageError as error:
        _fail(_usage_sentence(error))
    except UserError as error:
        _fail(str(error))
    except BrokenPipeError:  # as in 'highrank recipes | head': the flush at exit must not fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        file = f" {error.filename}" if error.filename else ""
        _fail(f"cannot read or write{file}: {error.strerror or error}.")


def _usage_sentence(error: Any) -> str:
    """Return typer's message on one line, followed by the command that shows the help."""
    message = error.format_message()
    if message.startswith("Usage:"):  # a group without a command (no_args_is_help): the message is the whole help
        print(message, file=sys.stderr)
        sys.exit(2)
    message = " ".join(message.split()).replace("Value error, ", "")  # a prefix of pydantic, which typer uses
    message = message[:1].lower() + message[1:]
    path = error.ctx.command_path if error.ctx else "highrank"
    return f"{message}{'' if message.endswith(('.', '?')) else '.'} See '{path} --help'."


def _fail(sentence: str) -> NoReturn:
    print(f"highrank: {sentence}", file=sys.stderr)
    sys.exit(2)


def _print_version(requested: bool) -> None:
    if requested:
        print(f"highrank {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command(short_help="See the bottleneck broken, in a minute on a CPU.")(quickstart.quickstart)
app.command(short_help="List the recipes, or compare their settings.")(recipes.recipes)
app.command(short_help="Train a model from a recipe.")(train.train)
app.command(short_help="Train a Hugging Face model with a mixture.")(uptrain.uptrain)
app.command(short_help="List trained runs.")(runs.runs)
app.command(short_help="Write a run as small files to carry elsewhere.")(export.export)
app.command("import", short_help="Make a run from an export.")(export.import_)
app.command(short_help="Measure perplexity: static, dynamic or with a cache.")(evaluate.evaluate)
app.command(short_help="Continue a text with a trained model.")(generate.generate)
app.command(short_help="See in the browser what models predict.")(explore.explore)
app.command(short_help="Talk to a trained dialog model.")(chat.chat)
app.command(short_help="Write the record of a run, for the report.")(record.record)
app.command(short_help="Measure rank, spectrum and pairwise KLD of models.")(analyze.analyze)
app.command(short_help="Report what a model's output layer can express.")(doctor.doctor)
app.command(short_help="Find where one run predicts better than another.")(compare.compare)
app.command(short_help="Show every result beside the paper's.")(report.report)
app.command(short_help="Check the paper's theory on a finite language.")(theory.theory)
app.add_typer(data.app, name="data", short_help="List, get, check, make and prepare corpora.")
