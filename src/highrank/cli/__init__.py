"""The command line: one verb a stage. Mistakes get one sentence and exit code 2, never a traceback."""

import sys
from pathlib import Path
from typing import Annotated

import typer

import highrank
from highrank.cli import analyze, bench, catalogue, compare, record, report, train, use
from highrank.cli.options import out
from highrank.errors import UserError

app = typer.Typer(
    name="highrank",
    help="Language models that break the softmax bottleneck (Yang et al., ICLR 2018).\n\n"
    "Start with 'highrank quickstart': it needs no data and a few minutes on a CPU.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
data_app = typer.Typer(help="Which corpora there are, and whether the copy at hand is right.", no_args_is_help=True)


def main() -> None:
    """The `highrank` command."""
    try:
        app()
    except UserError as error:
        _fail(str(error))
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        _fail(f"cannot read or write{where}: {error.strerror or error}.")
    except KeyboardInterrupt:
        _fail("interrupted.", code=130)


def _fail(sentence: str, code: int = 2) -> None:
    print(f"highrank: {sentence}", file=sys.stderr)
    sys.exit(code)


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


@app.command()
def quickstart(
    output: Annotated[Path, typer.Option("--out", help="Folder for the report, the figure and the runs.")] = Path(
        "quickstart"
    ),
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 1,
) -> None:
    """See the bottleneck broken on a language we know and on one we speak. No download, minutes on a CPU."""
    from highrank.quickstart import quickstart as run_quickstart

    run_quickstart(output, seed, out)


app.command()(catalogue.recipes)
app.command()(train.train)
app.command()(train.runs)
app.command()(train.export)
app.command("import")(train.import_)
app.command()(use.evaluate)
app.command()(use.generate)
app.command()(record.record)
app.command()(analyze.analyze)
app.command()(compare.compare)
app.command()(report.report)
data_app.command("list")(catalogue.data_list)
data_app.command("verify")(catalogue.data_verify)
data_app.command("prepare")(catalogue.data_prepare)
app.add_typer(data_app, name="data")
app.add_typer(bench.app, name="bench")
