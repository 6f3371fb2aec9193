"""Reads the run records and analyses of a results folder. A missing folder gives an empty list."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from highrank.analysis.record import Analysis, AnalysisRecord
from highrank.recipes import RECIPES
from highrank.runs.analysis import read_analysis
from highrank.runs.record import Piece, RunRecord, read_record


def short_machine_name(name: str | None) -> str:
    """Return a machine's name without its vendor: H200 for NVIDIA H200."""
    return (name or "").removeprefix("NVIDIA ")


@dataclass(frozen=True)
class RecordedRun:
    """A run record and the name of its file in results/runs/."""

    file: str
    record: RunRecord

    @property
    def path(self) -> str:
        return f"runs/{self.file}"

    @property
    def recipe(self) -> str:
        return self.record.recipe

    @cached_property
    def changes(self) -> dict[str, Any]:
        """The settings that differ from the recipe, except the seed."""
        return {key: value for key, value in self.record.overrides.items() if key != "train.seed"}

    @property
    def has_recipe_model(self) -> bool:
        """Whether this is the recipe's model on the recipe's text; settings of training may differ."""
        return all(key.startswith("train.") for key in self.changes)

    @property
    def is_finetuned(self) -> bool:
        """Whether finetuning completed an epoch; before that, the weights are those of the first stage."""
        return self.record.stage > 0 and self.record.epochs > self.record.stages[0].epochs

    @property
    def on_gpu(self) -> bool:
        return "threads" not in self.machine()  # provenance counts the threads of a CPU

    def pieces(self, epochs: int | None = None) -> list[Piece]:
        """Return the pieces of the run, or those that started before `epochs` were completed."""
        return [piece for piece in self.record.pieces if epochs is None or piece.epoch < epochs]

    def commit(self, epochs: int | None = None) -> str | None:
        """Return the commit of the last piece of the run, or of its first `epochs`."""
        return self.pieces(epochs)[-1].commit or self.record.provenance.commit

    def machine(self, epochs: int | None = None) -> str:
        """Return the machines that trained the run, or its first `epochs`."""
        names = [short_machine_name(piece.machine) for piece in self.pieces(epochs)]
        return " and ".join(dict.fromkeys(names))


def load_runs(results: Path) -> list[RecordedRun]:
    """Read every run record, sorted by recipe, then by epochs, then by name (k3 before k15)."""
    runs = [RecordedRun(path.name, read_record(path)) for path in (results / "runs").glob("*.json")]
    recipes = list(RECIPES)

    def key(run: RecordedRun) -> tuple[Any, ...]:
        recipe = recipes.index(run.recipe) if run.recipe in recipes else len(recipes)
        name = [(text, int(digits or 0)) for text, digits in re.findall(r"(\D*)(\d*)", run.file)]
        return recipe, run.record.epochs, name

    return sorted(runs, key=key)


@dataclass(frozen=True)
class RecordedAnalysis:
    """One model of an analysis record, and the file's name in results/analysis/."""

    file: str
    record: AnalysisRecord
    model: Analysis

    @property
    def path(self) -> str:
        return f"analysis/{self.file}"

    @property
    def is_lower_bound(self) -> bool:
        """Whether the true rank may be higher: projected, or fewer rows than the rank a mixture can reach."""
        few_rows = self.record.tokens < self.record.vocabulary
        return self.model.projected is not None or (self.model.head == "mos" and few_rows)


def load_analyses(results: Path) -> list[RecordedAnalysis]:
    """Read the analyses of every model that was trained from a recipe."""
    folder = results / "analysis"
    analyses = []
    for path in sorted(folder.glob("**/*.json")):
        record = read_analysis(path)
        file = path.relative_to(folder).as_posix()
        analyses += [RecordedAnalysis(file, record, model) for model in record.models if model.recipe]
    return analyses
