"""All tables of one results folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from highrank.report.cost import cost_tables, slowdown_table
from highrank.report.dialog import dialog_table
from highrank.report.own_runs import runs_table
from highrank.report.perplexity import ablation, headline, own_models, single_models, ten_minutes
from highrank.report.rank import components_table, kld_table, rank_table
from highrank.report.records import RecordedRun, load_analyses, load_runs
from highrank.report.table import Table
from highrank.report.training_score import billion_table, characters_table


@dataclass(frozen=True)
class Report:
    """The content of a results folder."""

    results: Path
    runs: list[RecordedRun]
    tables: dict[str, Table]  # by the name that markers in documents use
    shown: dict[str, Table]  # the runs first, then the tables that contain a result of ours
    entries: list[dict[str, Any]]  # one per number, for --json


def build_report(results: Path) -> Report:
    """Read a results folder and build its tables."""
    runs = load_runs(results)
    analyses = load_analyses(results)
    compared = {
        "ptb": single_models(runs, "ptb"),
        "wt2": single_models(runs, "wt2"),
        "own-recipes": own_models(runs),
        "ten-minutes": ten_minutes(runs),
        "components": components_table(runs, analyses),
        "ablation": ablation(runs),
        "time": slowdown_table(results),
        "rank": rank_table(analyses),
        "kld": kld_table(analyses),
        "billion": billion_table(runs),
        "characters": characters_table(runs),
        "dialog": dialog_table(runs),
    }
    tables = {"headline": headline(runs), **{name: table.table() for name, table in compared.items()}}
    entries = [entry for name, table in compared.items() for entry in table.entries(name)]
    costs = cost_tables(results)
    own = {"runs": runs_table(runs)} if runs else {}
    with_results = {name: table for name, table in tables.items() if table.has_records}
    return Report(results, runs, tables | costs, own | with_results | costs, entries)
