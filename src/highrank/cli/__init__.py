"""The command line: one verb a stage. Mistakes get one sentence and exit code 2, never a traceback."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

import highrank
from highrank.cli import analyze, bench, compare, evaluate, recipes, record, report, theory, train
from highrank.cli.console import out
from highrank.cli.help import Verbs
from highrank.cli.usage import NoArgsIsHelpError, UsageError, explain
from highrank.errors import UserError

app = Verbs(
    name="highrank",
    help="Language models that break the softmax bottleneck (Yang et al., ICLR 2018).\n\n"
    "Start with 'highrank quickstart': it needs no data and a few minutes on a CPU.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = Verbs(
    help="Which corpora there are, and whether the copy at hand is right.",
    short_help="Corpora: what they are, and whether yours are right.",
    no_args_is_help=True,
)


def main() -> None:
    """The `highrank` command, but for Ctrl-C (`__main__.py`)."""
    # How long OpenMP's threads spin for one another, read when torch is imported. On a machine that is busy with other
    # things, its default makes small models thirty times slower; this costs an idle one little (docs/performance.md).
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    try:
        command, words = typer.main.get_command(app), sys.argv[1:]
        with command.make_context("highrank", list(words)) as context:
            command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        sys.exit(2)
    except UsageError as error:
        _fail(explain(error, command, words))
    except UserError as error:
        _fail(str(error))
    except BrokenPipeError:  # nobody reads on ('highrank recipes | head'): Python's last flush must not complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        _fail(f"cannot read or write{where}: {error.strerror or error}.")


def _fail(sentence: str) -> None:
    print(f"highrank: {sentence}", file=sys.stderr)
    sys.exit(2)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"highrank {highrank.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(short_help="See the bottleneck broken, in minutes on a CPU.")
def quickstart(
    output: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Folder for the report, the figure and the runs.")
    ] = Path("quickstart"),
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of everything random.")] = 1,
) -> None:
    """See the bottleneck broken on a language we know and on one we speak. No download, minutes on a CPU."""
    from highrank.cli.quickstart import quickstart as run_quickstart

    run_quickstart(output, seed, out)


app.command(short_help="The paper's models side by side.")(recipes.recipes)
app.command(short_help="Train a model by a recipe.")(train.train)
app.command(short_help="What has been trained.")(train.runs)
app.command(short_help="Write a run as small files to carry elsewhere.")(train.export)
app.command("import", short_help="Make a run from an export.")(train.import_)
app.command(short_help="Exact perplexity, dynamic evaluation, cache.")(evaluate.evaluate)
app.command(short_help="Continue a text with a trained model.")(evaluate.generate)
app.command(short_help="One JSON record of a run, for the report.")(record.record)
app.command(short_help="Rank, spectrum and pairwise KLD of models.")(analyze.analyze)
app.command(short_help="Where one run predicts better than another.")(compare.compare)
app.command(short_help="Every result beside the paper's.")(report.report)
app.command(short_help="The paper's theory put to the numbers.")(theory.theory)
data_app.command("list")(recipes.data_list)
data_app.command("verify")(recipes.data_verify)
data_app.command("prepare", short_help="Tokenise one now: later commands start at once.")(recipes.data_prepare)
data_app.command("kept", short_help="What commands keep for later, and how much it is.")(recipes.data_kept)
app.add_typer(data_app, name="data")
app.add_typer(bench.app, name="bench")
