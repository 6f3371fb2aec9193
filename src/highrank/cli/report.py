"""`highrank report`: our results beside the paper's."""

from pathlib import Path
from typing import Annotated

import typer

from highrank.cli.console import print_json, print_written, say
from highrank.cli.options import RECORDS, AsJson
from highrank.errors import UserError


def report(
    results: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="Folder with runs/, analysis/ and benchmarks/."),
    ] = RECORDS,
    output: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Write report.html and figures into this folder."),
    ] = None,
    readme: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Update the tables between the markers of a Markdown file. Repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show all recorded runs, and their results beside the paper's: as Markdown, as a page, as JSON, or in documents.

    'highrank record' adds a run. Tables of the paper for which there is no result are left out.
    """
    from highrank.files import output_folder
    from highrank.report.build import build_report
    from highrank.report.table import to_markdown
    from highrank.report.write import update_document, write_report

    documents = readme or []
    for document in documents:
        if not document.is_file():
            raise UserError(f"{document} is not a file.")
    if output:
        output_folder(output)
    built = build_report(results)
    if not built.shown:
        raise UserError(f"{results} has no results: record a run with 'highrank record RUN', or give --results FOLDER.")
    for document in documents:
        if update_document(document, built):
            print_written((document, "tables updated"), as_json=as_json)
        elif not as_json:
            say(f"{document} is already up to date.")
    if output:
        print_written(*write_report(built, output), as_json=as_json)
    if as_json:
        print_json(built.entries)
    elif not (documents or output):
        for name, table in built.shown.items():
            print(f"## {name}\n\n{to_markdown(table, results.as_posix())}\n")
