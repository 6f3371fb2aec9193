"""All tables of one results folder."""

from dataclasses import dataclass
from pathlib import Path

from highrank.report import paper
from highrank.report.cost import cost_sections, slowdown_table
from highrank.report.overview import best_runs
from highrank.report.perplexity import ablation, single_models, ten_minutes
from highrank.report.rank import components_table, kld_table, rank_table
from highrank.report.records import RecordedAnalysis, RecordedRun, load_analyses, load_runs
from highrank.report.results import ResultTable, Section


@dataclass(frozen=True)
class Report:
    """The content of a results folder, as tables."""

    results: Path
    runs: list[RecordedRun]
    analyses: list[RecordedAnalysis]
    tables: list[ResultTable]
    costs: list[Section]

    def sections(self, link: str) -> dict[str, Section]:
        """Return every table that a document can show, by name; links lead to the results folder at `link`."""
        sections = [best_runs(self.runs, link), *(table.section(link) for table in self.tables), *self.costs]
        return {section.name: section for section in sections}

    def missing(self) -> list[str]:
        """Return the tables of the paper that we do not have."""
        ours = {number for table in self.tables for number in table.paper_tables}
        return [f"Table {number}: {title}" for number, title in paper.TABLES.items() if number not in ours]


def build_report(results: Path) -> Report:
    """Read a results folder and build its tables."""
    runs = load_runs(results)
    analyses = load_analyses(results)
    tables = [
        single_models(runs, "ptb", 1),
        single_models(runs, "wt2", 2),
        ten_minutes(runs),
        components_table(runs, analyses),
        ablation(runs),
        slowdown_table(results),
        rank_table(analyses),
        kld_table(analyses),
    ]
    return Report(results, runs, analyses, tables, cost_sections(results))
