"""Writes a report: as a page with figures, and into the documents that show its tables."""

import os
import re
from pathlib import Path

from highrank.errors import UserError, nearest
from highrank.files import write_text
from highrank.plotting import save_figure
from highrank.recipes import RECIPES
from highrank.report.build import Report
from highrank.report.figures.curves import report_figures
from highrank.report.overview import all_runs
from highrank.report.page import data_uri, render
from highrank.report.perplexity import CORPORA, single_model_in_paper
from highrank.report.records import RecordedRun
from highrank.report.results import Section
from highrank.report.scores import best_on_validation, best_score, final_score, runs_of
from highrank.report.table import Code, Text, text_to_markdown, to_markdown

TITLE = "Breaking the softmax bottleneck, reproduced"
BEGIN = "<!-- {name}: made by 'highrank report' -->"
END = "<!-- end of {name} -->"


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write report.html and figures/ into a folder; return the files, the page first."""
    link = _relative(report.results, folder)
    sections = [section for name, section in report.sections(link).items() if name != "results"]  # has every row
    figures = report_figures(report.runs, report.analyses)
    files = []
    for name, figure in figures.items():
        files += save_figure(figure.figure, [folder / "figures" / f"{name}.{suffix}" for suffix in ("png", "svg")])
    uris = {name: data_uri((folder / "figures" / f"{name}.svg").read_bytes(), "image/svg+xml") for name in figures}
    html = render(
        "report.html",
        title=TITLE,
        summary=_summary(report),
        cards=_cards(report.runs),
        sections=sections,
        figures=[(f"figure-{name}", uris[name], figure.caption) for name, figure in figures.items()],
        missing=report.missing(),
        runs=all_runs(report.runs, link),
    )
    write_text(folder / "report.html", html)
    return [folder / "report.html", *files]


def update_document(document: Path, report: Report) -> bool:
    """Renew the tables between the markers of a Markdown document; return whether anything changed."""
    old = document.read_text(encoding="utf-8")
    try:
        new = fill_markers(old, report.sections(_relative(report.results, document.parent)))
    except UserError as error:
        raise UserError(f"{document}: {error}") from None
    if new != old:
        write_text(document, new)
    return new != old


def fill_markers(text: str, sections: dict[str, Section]) -> str:
    """Return `text` with each table that it has markers for between them."""
    names = re.findall(re.escape(BEGIN).replace(r"\{name\}", "([a-z0-9-]+)"), text)
    if not names:
        raise UserError(f"there are no markers for tables, such as {BEGIN.format(name='results')}.")
    for name in names:
        begin = BEGIN.format(name=name)
        end = END.format(name=name)
        if name not in sections:
            raise UserError(f'there is no table "{name}"{nearest(name, sections)}')
        before, rest = text.split(begin, 1)
        if end not in rest:
            raise UserError(f"the marker {end} is missing.")
        after = rest.split(end, 1)[1]
        text = f"{before}{begin}\n{section_to_markdown(sections[name])}\n{end}{after}"
    return text


def section_to_markdown(section: Section) -> str:
    """Render the caption and the table of a section."""
    caption = text_to_markdown(section.caption)
    return f"{caption}\n\n{to_markdown(section.table)}" if caption else to_markdown(section.table)


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def _summary(report: Report) -> str:
    results = [result for table in report.tables for row in table.rows for result in row.results if result.applies]
    filled = sum(result.ours is not None for result in results)
    return (
        "Every table of Yang et al. (ICLR 2018) that this code can reproduce, the paper's numbers beside ours. "
        f"{len(report.runs)} runs fill {filled} of {len(results)} cells."
    )


def _cards(runs: list[RecordedRun]) -> list[tuple[str, str, Text]]:
    """Return the best test perplexities, chosen on validation: what was measured, the number, and the run."""
    cards: list[tuple[str, str, Text]] = []
    for number, (corpus, corpus_name) in enumerate(CORPORA.items(), start=1):
        candidates = [run for name in RECIPES if name.startswith(f"{corpus}-") for run in runs_of(name, runs)]
        plain = best_on_validation(map(final_score, candidates))
        dynamic = best_score(candidates, "dynamic")
        for best, how in ((plain, ""), (dynamic, ", dynamic evaluation")):
            if best is None:
                continue
            state = "dynamic" if how else "finetuned" if best.run.is_finetuned else "trained"
            in_paper = single_model_in_paper(RECIPES[best.run.recipe], state, number)
            about = f", {best.seconds / 60:.0f} min of one {best.run.machine()}"
            about += f"; the paper: {in_paper.test:.2f}" if in_paper else ""
            title = f"{corpus_name}, test perplexity{how}"
            cards.append((title, f"{best.test:.2f}", (Code(best.run.recipe), about)))
    return cards
