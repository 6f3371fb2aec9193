"""results/ as data: run records, benchmark CSVs, analyses. Reading only; whatever is missing is an empty list."""

import csv
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from highrank.errors import UserError
from highrank.files import read_json
from highrank.recipes import RECIPES, overrides
from highrank.report.shape import ANALYSIS, RUN
from highrank.shape import wrong

# The columns that are read of a benchmark's CSV, and how those that are numbers are written.
LOSS = ("size", "N", "K", "D", "V", "dtype", "implementation", "status", "median_ms", "graph_ms", "extra_mib",
        "machine")  # fmt: skip
STEP = ("recipe", "settings", "how", "batch", "bptt", "K", "median_ms", "tokens_per_second", "slowdown", "paper_column",
        "commit", "machine")  # fmt: skip
WHOLE, DECIMAL = r"\d+", r"\d+(\.\d*)?(e[+-]?\d+)?"
NUMBERS = {"K": WHOLE, "V": WHOLE, "median_ms": DECIMAL, "tokens_per_second": DECIMAL}
NUMBERS |= dict.fromkeys(("graph_ms", "extra_mib", "slowdown"), f"({DECIMAL})?")  # empty where there is none


def machine_name(told: Any) -> str:
    """H200 for NVIDIA H200; nothing where nothing was told."""
    return str(told or "").removeprefix("NVIDIA ")


@dataclass(frozen=True)
class Record:
    """A run record (`highrank record`): results/runs/<file>."""

    file: str
    data: dict[str, Any]

    @property
    def path(self) -> str:
        return f"runs/{self.file}"

    @property
    def recipe(self) -> str:
        return str(self.data["recipe"])

    @cached_property
    def overrides(self) -> dict[str, Any]:
        """Where the run differs from the recipe as it stands; the seed is no difference."""
        found = overrides(self.data["settings"]) if "settings" in self.data else self.data.get("overrides", {})
        return {key: value for key, value in found.items() if key != "train.seed"}

    @property
    def same_model(self) -> bool:
        """The recipe's model on the recipe's text, whatever was changed about its training."""
        return all(key.startswith("train.") for key in self.overrides)

    def pieces(self, epochs: int | None = None) -> list[dict[str, Any]]:
        """The starts of training, or those before `epochs` were over; what came before they were counted is one."""
        pieces = self.data.get("pieces") or []
        if not pieces or pieces[0]["epoch"] > 0:
            pieces = [{**self.data["provenance"], "epoch": 0}, *pieces]
        return [piece for piece in pieces if epochs is None or piece["epoch"] < epochs] or pieces[:1]

    def commit(self, epochs: int | None = None) -> str | None:
        """Of the code that ended the run, or its first `epochs`: a run in pieces has one for each."""
        said = self.pieces(epochs)[-1].get("commit") or self.data["provenance"].get("commit")
        return None if said is None else str(said)

    def machine(self, epochs: int | None = None) -> str:
        """H200; of a run that was carried elsewhere, every machine that trained it."""
        first = self.data["provenance"]["machine"]
        names = [machine_name(piece.get("machine") or first) for piece in self.pieces(epochs)]
        return " and ".join(dict.fromkeys(names))

    def stage(self, number: int) -> dict[str, Any] | None:
        """What a stage came to: {"valid_ppl", "test_ppl", "epochs", "seconds"}; 0 is training, 1 finetuning."""
        for stage in self.data.get("stages", []):
            if stage["stage"] == number:
                return dict(stage)
        return self.data if self.data.get("stage", 0) == number else None

    @property
    def finetuned(self) -> bool:
        """For an epoch at least: a stage that was only begun has the weights of the one before."""
        over = self.data.get("stages", [])[:-1]
        return self.data.get("stage", 0) > 0 and (not over or self.data["epochs"] > over[0]["epochs"])

    @property
    def on_gpu(self) -> bool:
        return "threads" not in self.machine()


def load_records(results: Path) -> list[Record]:
    """Every run record, by recipe in the order of `highrank recipes`, then by epochs, then by name (k3 before k15)."""
    records = []
    for path in sorted((results / "runs").glob("*.json")):
        data = read_json(path, "run record")
        if said := wrong(data, RUN):
            raise UserError(f"{path} is not a run record: {said}; make it anew.")
        records.append(Record(path.name, {key: value for key, value in data.items() if value is not None}))
    order = list(RECIPES)

    def key(record: Record) -> tuple[int, int, list[tuple[str, int]]]:
        place = order.index(record.recipe) if record.recipe in order else len(order)
        name = [(text, int(digits or 0)) for text, digits in re.findall(r"(\D*)(\d*)", record.file)]
        return place, record.data["epochs"], name

    return sorted(records, key=key)


@dataclass(frozen=True)
class Analysis:
    """One model of an analysis (`highrank analyze`) on one split: results/analysis/<file>."""

    file: str
    split: str | None
    model: dict[str, Any]
    provenance: dict[str, Any]

    @property
    def path(self) -> str:
        return f"analysis/{self.file}"

    @property
    def at_least(self) -> bool:
        """Whether the rank is a lower bound: seen through a projection, or in fewer rows than a mixture could fill."""
        few = self.model["head"] == "mos" and self.model["tokens"] < self.model["vocabulary"]
        return bool(self.model.get("projected")) or few


def load_analyses(results: Path) -> list[Analysis]:
    found = []
    for path in sorted((results / "analysis").glob("**/*.json")):
        data = read_json(path, "analysis")
        if not isinstance(data, dict) or data.get("kind") != "analysis":
            continue
        name = path.relative_to(results / "analysis").as_posix()
        if said := wrong(data, ANALYSIS):
            raise UserError(f"{path} is not an analysis: {said}; make it anew.")
        size = {"tokens": data["tokens"], "vocabulary": data["vocabulary"]}
        models = [{**model, **size} for model in data["models"]]
        # A model from elsewhere has no recipe, and no cell in the paper.
        found += [Analysis(name, data.get("split"), m, data["provenance"]) for m in models if m.get("recipe")]
    return found


def load_csv(results: Path, name: str) -> list[dict[str, str]]:
    """A benchmark's rows that hold a time; none where it was not run."""
    path = results / "benchmarks" / name
    if not path.exists():
        return []
    needed = STEP if name.startswith("step") else LOSS
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, restval=""))
    except (csv.Error, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not a benchmark's CSV ({error}); measure anew.") from None
    if rows and (missing := [column for column in needed if column not in rows[0]]):
        raise UserError(f"{path} is not a benchmark's CSV: it has no column {missing[0]}; measure anew.")
    for number, row in enumerate(rows, start=1):
        for column in [c for c in needed if c in NUMBERS and row["median_ms"]]:
            if not re.fullmatch(NUMBERS[column], row[column].strip()):
                said = f'{column} of row {number} is "{row[column]}", not a number'
                raise UserError(f"{path} is not a benchmark's CSV: {said}; measure anew.")
    return [row for row in rows if row["median_ms"]]
