"""results/ as data: run records, benchmark CSVs, analyses. Reading only; whatever is missing is an empty list."""

import csv
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from highrank.errors import UserError
from highrank.files import read_json
from highrank.recipes import RECIPES, overrides

NUMBERS = {"epochs", "seconds", "valid_ppl", "test_ppl"}
NEEDED = {"recipe", "seed", "provenance"} | NUMBERS
OBJECTS = {"provenance", "settings", "overrides", "curve", "dynamic", "dynamic_tuned", "cache", "cache_tuned"}
LISTS = {"stages", "pieces"}  # of objects


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

    @property
    def pieces(self) -> int:
        """How often training was started; what came before that was counted is one piece."""
        pieces = self.data.get("pieces", [])
        return len(pieces) + (not pieces or pieces[0]["epoch"] > 0)

    @property
    def commit(self) -> str | None:
        """Of the code that ended the run: a run in pieces has one for each."""
        last = (self.data.get("pieces") or [{}])[-1]
        said = last.get("commit") or self.data["provenance"]["commit"]
        return None if said is None else str(said)

    def stage(self, number: int) -> dict[str, Any] | None:
        """What a stage came to: {"valid_ppl", "test_ppl", "epochs", "seconds"}; 0 is training, 1 finetuning."""
        for stage in self.data.get("stages", []):
            if stage["stage"] == number:
                return dict(stage)
        return self.data if self.data.get("stage", 0) == number else None

    @property
    def on_gpu(self) -> bool:
        return "threads" not in self.machine

    @property
    def machine(self) -> str:
        return str(self.data["provenance"]["machine"]).removeprefix("NVIDIA ")


def load_records(results: Path) -> list[Record]:
    """Every run record, by recipe in the order of `highrank recipes`, then by time trained."""
    records = []
    for path in sorted((results / "runs").glob("*.json")):
        data = read_json(path, "run record")
        missing = NEEDED - data.keys() if isinstance(data, dict) else NEEDED
        if missing:
            raise UserError(f"{path} is not a run record: it lacks {', '.join(sorted(missing))}.")
        for key, value in data.items():
            if wanted := _wanted(key, value):
                raise UserError(f"{path} is not a run record: its {key} is not {wanted}; make it anew.")
        records.append(Record(path.name, data))
    order = list(RECIPES)
    return sorted(records, key=lambda r: (order.index(r.recipe) if r.recipe in order else 99, r.data["seconds"]))


def _wanted(key: str, value: Any) -> str:
    """What a value of a record should have been; nothing where it is."""
    if key in NUMBERS and (isinstance(value, bool) or not isinstance(value, int | float)):
        return "a number"
    if key in OBJECTS and not isinstance(value, dict):
        return "an object"
    if key in LISTS and not (isinstance(value, list) and all(isinstance(part, dict) for part in value)):
        return "a list of objects"
    return ""


@dataclass(frozen=True)
class Analysis:
    """One model of an analysis (`highrank analyze`) on one split: results/analysis/<file>."""

    file: str
    split: str
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
        try:
            split, provenance = data["split"], data["provenance"]
            size = {"tokens": data["tokens"], "vocabulary": data["vocabulary"]}
            models = [{**model, **size} for model in data["models"]]
        except (KeyError, TypeError) as error:
            raise UserError(f"{path} is not an analysis that this version of highrank wrote ({error}).") from None
        # A model from elsewhere has no recipe, and no cell in the paper.
        found += [Analysis(name, split, model, provenance) for model in models if model.get("recipe")]
    return found


def load_csv(results: Path, name: str) -> list[dict[str, str]]:
    """A benchmark's rows that hold a time; none where it was not run."""
    path = results / "benchmarks" / name
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if rows and "median_ms" not in rows[0]:
        raise UserError(f"{path} is not a benchmark's CSV: it has no column median_ms.")
    return [row for row in rows if row["median_ms"]]
