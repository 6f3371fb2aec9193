"""Writes a report: as a page with figures, and into the documents that show its tables."""

import os
import re
from pathlib import Path

from highrank.errors import UserError, nearest
from highrank.files import read_text, write_text
from highrank.plotting import save_figure
from highrank.report.build import Report
from highrank.report.figures.curves import learning_curves
from highrank.report.page import embed_svg, render
from highrank.report.perplexity import CORPORA
from highrank.report.table import Table, to_markdown

BEGIN = "<!-- {name}: made by 'highrank report' -->"
END = "<!-- end of {name} -->"


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write report.html and figures/ into a folder; return the files, the page first."""
    page = folder / "report.html"
    files = [page]
    images = {}
    for corpus, title in {**CORPORA, "text8": "text8", "swda": "Switchboard"}.items():
        if figure := learning_curves(corpus, report.runs):
            png, svg = (folder / "figures" / f"curves-{corpus}.{suffix}" for suffix in ("png", "svg"))
            files += save_figure(figure, [png, svg])
            images[title] = embed_svg(svg)
    results = _relative(report.results, folder)
    write_text(page, render("report.html", tables=report.shown, results=results, images=images))
    return files


def update_document(document: Path, report: Report) -> bool:
    """Update the tables between the markers of a Markdown document; return whether anything changed."""
    old = read_text(document)
    try:
        new = fill_markers(old, report.tables, _relative(report.results, document.parent))
    except UserError as error:
        raise UserError(f"{document}: {error}") from None
    if new != old:
        write_text(document, new)
    return new != old


def fill_markers(text: str, tables: dict[str, Table], results: str) -> str:
    """Return `text` with each table that it has markers for between them; `results` is the path of the records."""
    names = re.findall(re.escape(BEGIN).replace(r"\{name\}", "([a-z0-9-]+)"), text)
    if not names:
        raise UserError(f"there are no markers for tables, such as {BEGIN.format(name='headline')}.")
    for name in names:
        begin = BEGIN.format(name=name)
        end = END.format(name=name)
        if name not in tables:
            raise UserError(f'there is no table "{name}"{nearest(name, tables)}')
        before, rest = text.split(begin, 1)
        if end not in rest:
            raise UserError(f"the marker {end} is missing.")
        after = rest.split(end, 1)[1]
        text = f"{before}{begin}\n{to_markdown(tables[name], results)}\n{end}{after}"
    return text


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()
