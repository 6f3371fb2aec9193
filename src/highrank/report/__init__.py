"""results/ -> tables, ours beside the paper's. Nothing is typed by hand but the paper's own numbers.

records.py      results/runs/*.json, results/analysis/*.json, results/benchmarks/*.csv -> data
shape.py        what those must look like
paper.py        what the paper prints, with the table it stands in
table.py        a table of cells, as Markdown and as one entry a number
perplexity.py, components.py, divergence.py, cost.py    the tables
overview.py     one row a recipe, for the README
curves.py       figures;  page.py: all of it as one HTML file
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from highrank.errors import UserError, nearest
from highrank.files import write_text
from highrank.report import cost, divergence, paper
from highrank.report.components import components
from highrank.report.overview import overview
from highrank.report.perplexity import ablation, single_models, ten_minutes
from highrank.report.records import Analysis, Record, load_analyses, load_records
from highrank.report.results import Table, markdown, unbroken

BEGIN, END = "<!-- {name}: made by 'highrank report' -->", "<!-- end of {name} -->"


@dataclass(frozen=True)
class Report:
    """Everything that results/ holds, as tables."""

    results: Path
    records: list[Record]
    analyses: list[Analysis]
    tables: list[Table]

    def untouched(self) -> list[str]:
        """Tables of the paper that no table here stands for."""
        ours = {number for table in self.tables for number in table.tables}
        return [f"table {number}: {what}" for number, what in paper.TABLES.items() if number not in ours]


def build(results: Path) -> Report:
    records, analyses = load_records(results), load_analyses(results)
    tables = [
        single_models(records, "ptb", "Penn Treebank", 1),
        single_models(records, "wt2", "WikiText-2", 2),
        ten_minutes(records),
        components(records, analyses),
        ablation(records),
        cost.slowdown(results),
        divergence.rank(analyses),
        divergence.kld(analyses),
    ]
    return Report(results, records, analyses, tables)


def sections(report: Report, link: str = "results") -> dict[str, str]:
    """What a README may show, by name; links lead to `link`, where results/ is as seen from it."""
    parts = {"results": overview(report.records, link), "cost": cost.cost_text(report.results)}
    return parts | {table.name: markdown(table, link) for table in report.tables}


def fill(text: str, parts: dict[str, str]) -> str:
    """`text` with each part that it has markers for put between them."""
    found = re.findall(re.escape(BEGIN).replace(r"\{name\}", "([a-z0-9-]+)"), text)
    if not found:
        raise UserError(f"the file has no markers for tables: {BEGIN.format(name='results')} begins one.")
    for name in found:
        begin, end = BEGIN.format(name=name), END.format(name=name)
        if name not in parts:
            raise UserError(f'there is no table "{name}" to put between the markers{nearest(name, parts)}')
        before, rest = text.split(begin, 1)
        if end not in rest:
            raise UserError(f"the file lacks the marker {end} that ends the table {name}.")
        after = rest.split(end, 1)[1]
        text = f"{before}{begin}\n{unbroken(parts[name])}\n{end}{after}"
    return text


def update(readme: Path, report: Report) -> bool:
    """Renew the tables in `readme`; returns whether anything changed."""
    try:
        old = readme.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{readme} is not UTF-8 text ({error}): convert it first.") from None
    link = Path(os.path.relpath(report.results, readme.parent)).as_posix()
    new = fill(old, sections(report, link))
    if new != old:
        write_text(readme, new)
    return new != old
