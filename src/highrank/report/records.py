"""Reads the run records and analyses of a results folder. A missing folder gives an empty list."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from highrank.analysis.record import Analysis, AnalysisRecord
from highrank.recipes import overrides
from highrank.recipes.settings import format_setting
from highrank.report.results import Origin
from highrank.runs.analysis import read_analysis
from highrank.runs.record import RunRecord, read_record


@dataclass(frozen=True)
class RecordedRun:
    """A run record and its path in the results folder."""

    path: str
    record: RunRecord

    @property
    def changes(self) -> dict[str, Any]:
        """The settings that differ from today's recipe, except the seed."""
        return {key: value for key, value in overrides(self.record.settings).items() if key != "train.seed"}

    @property
    def has_recipe_model(self) -> bool:
        """Whether this is the recipe's model on the recipe's text; settings of training may differ."""
        return all(key.startswith("train.") for key in self.changes)

    @property
    def is_finetuned(self) -> bool:
        """Whether finetuning completed an epoch; before that, the weights are those of the first stage."""
        return self.record.stage > 0 and self.record.epochs > self.record.stages[0].epochs

    def origin(self, epochs: int, seconds: float, remark: str = "") -> Origin:
        """Return where a result after `epochs` comes from."""
        pieces = [piece for piece in self.record.pieces if piece.epoch < epochs]
        machines = dict.fromkeys(short_machine_name(piece.machine) for piece in pieces)
        # The table of all runs has a column for the corpus, and the others show no run of another corpus.
        changes = [f"{key}={format_setting(value)}" for key, value in self.changes.items() if key != "data.corpus"]
        about = [
            f"with {' '.join(changes)}" if changes else "",
            f"from the weights of {self.record.init_from}" if self.record.init_from else "",
            f"in {len(pieces)} pieces" if len(pieces) > 1 else "",
            remark,
        ]
        return Origin(
            record=self.path,
            commit=pieces[-1].commit or self.record.provenance.commit,
            machine=" and ".join(machines),
            seed=self.record.seed,
            epochs=epochs,
            seconds=seconds,
            processes=max(piece.processes for piece in pieces),
            about=", ".join(filter(None, about)) or None,
        )


def load_runs(results: Path) -> list[RecordedRun]:
    """Read every run record."""
    return [RecordedRun(f"runs/{path.name}", read_record(path)) for path in sorted((results / "runs").glob("*.json"))]


@dataclass(frozen=True)
class RecordedAnalysis:
    """One model of an analysis, and the path of the analysis in the results folder."""

    path: str
    record: AnalysisRecord
    model: Analysis

    @property
    def is_lower_bound(self) -> bool:
        """Whether the true rank may be higher: fewer rows than the rank that a mixture can reach."""
        return self.model.head == "mos" and self.record.tokens < self.record.vocabulary

    def origin(self) -> Origin:
        """Return where the results of the analysis come from."""
        provenance = self.record.provenance
        machine = short_machine_name(provenance["machine"])
        return Origin(self.path, provenance["commit"], machine, epochs=self.model.epochs)


def load_analyses(results: Path) -> list[RecordedAnalysis]:
    """Read the analyses of every model that was trained from a recipe."""
    analyses = []
    for path in sorted((results / "analysis").glob("**/*.json")):
        record = read_analysis(path)
        name = path.relative_to(results).as_posix()
        analyses += [RecordedAnalysis(name, record, model) for model in record.models if model.recipe]
    return analyses


def short_machine_name(name: str | None) -> str:
    """Return a machine's name without its vendor: H200 for NVIDIA H200."""
    return (name or "").removeprefix("NVIDIA ")
