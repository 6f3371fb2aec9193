"""`highrank report`: results beside the paper's."""

from pathlib import Path
from typing import Annotated

import typer

from highrank.cli.options import AsJson, out, print_json
from highrank.errors import UserError


def report(
    results: Annotated[Path, typer.Option(help="Folder with runs/*.json and benchmarks/*.csv.")] = Path("results"),
    readme: Annotated[Path | None, typer.Option(help="Renew the tables between this file's markers.")] = None,
    as_json: AsJson = False,
) -> None:
    """Every result beside the paper's: printed as Markdown, as JSON, or put into a README."""
    from highrank.report import cells, load_records, sections, update

    if not results.is_dir():
        raise UserError(f"there is no folder {results} with results: name it with --results.")
    if as_json:
        print_json(cells(load_records(results)))
    elif readme:
        out.print(f"{readme}: {'tables renewed' if update(readme, results) else 'already up to date'}.")
    else:
        for part in sections(results).values():
            print(part + "\n")
