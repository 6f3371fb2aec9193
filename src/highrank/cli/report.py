"""`highrank report`: results beside the paper's."""

from pathlib import Path
from typing import Annotated

import typer

from highrank.cli.console import print_json, print_written, say
from highrank.cli.options import AsJson
from highrank.errors import UserError


def report(
    results: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder with runs/, analysis/ and benchmarks/.")
    ] = Path("results"),
    output: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Write report.html, report.md and figures into this folder."),
    ] = None,
    readme: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Renew the tables between this file's markers.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Every result beside the paper's: as a page, as Markdown, as JSON, or put into a README.

    Records come from 'highrank record', 'highrank analyze' and 'highrank bench'. What was not run says so.
    """
    from highrank.files import output_folder
    from highrank.report import build, sections, update
    from highrank.report.results import flat

    if not results.is_dir():
        raise UserError(f"there is no folder {results} with results: name it with --results.")
    if readme and not readme.is_file():
        raise UserError(f"there is no file {readme} to put tables into.")
    if output:
        output_folder(output)
    made = build(results)
    if readme:
        changed = update(readme, made)
        if changed:
            print_written((readme, "tables renewed"), as_json=as_json)
        elif not as_json:
            say(f"{readme} is already up to date.")
    if output:
        from highrank.report.write import write

        files = write(made, output)
        print_written(*files, as_json=as_json)
    if as_json:
        print_json([entry for table in made.tables for entry in flat(table)])
    elif not (readme or output):
        for name, part in sections(made).items():
            print(f"## {name}\n\n{part}\n")
