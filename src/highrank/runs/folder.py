"""A run folder: everything about one training run, and `load`, which opens it.

run.json             recipe, corpus, provenance
vocabulary.json      the words by id
model.safetensors    the best weights on validation so far (averaged ones, once averaging is on)
checkpoint.json      where training stands; it names the safetensors file that belongs to it
metrics.jsonl        one line an epoch, and one every few seconds within it
summary.json         perplexities, once the run has ended or paused
"""

import contextlib
import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from highrank.data.corpus import Corpus, find_folder, load_corpus, own_folder
from highrank.errors import UserError
from highrank.files import new_folder, read_json, read_tensors, write_json
from highrank.models import LanguageModel, build_model
from highrank.recipes.recipe import Recipe, from_resolved
from highrank.runs import checkpoint as checkpoints
from highrank.runs.provenance import provenance
from highrank.shape import AMOUNT, DRAWN, PERPLEXITY, TEXT, WHOLE, YES_OR_NO, wrong

INDEX = "index.json"  # of an export
LINE = {"kind": TEXT}  # of metrics.jsonl, and that of an epoch
EPOCH = {"epoch": WHOLE, "seconds": AMOUNT, "train_ppl": DRAWN, "valid_ppl": DRAWN, "averaged": YES_OR_NO}
SUMMARY = {"epochs": WHOLE, "valid_ppl": PERPLEXITY, "test_ppl": PERPLEXITY}


@dataclass(frozen=True)
class Run:
    folder: Path

    @property
    def model_file(self) -> Path:
        return checkpoints.model_file(self.folder)

    @property
    def checkpoint_file(self) -> Path:
        return self.folder / "checkpoint.json"

    @property
    def metrics_file(self) -> Path:
        return self.folder / "metrics.jsonl"

    @property
    def summary_file(self) -> Path:
        return self.folder / "summary.json"

    def exists(self) -> bool:
        return (self.folder / "run.json").exists()

    def create(self, recipe: Recipe, corpus: Corpus, device: torch.device, data_dir: Path | None, made_by: str) -> None:
        new_folder(self.folder)
        write_json(self.folder / "vocabulary.json", corpus.words)
        write_json(
            self.folder / "run.json",
            {
                "recipe": recipe.resolved(),
                "corpus_fingerprint": corpus.fingerprint,
                "corpus_level": corpus.level,
                "data_dir": str(data_dir.resolve()) if data_dir else None,
                "made_by": made_by,
                "provenance": provenance(device),
            },
        )

    def info(self) -> dict[str, Any]:
        if not self.folder.is_dir():
            raise UserError(f"there is no run at {self.folder}; 'highrank runs' lists the runs at hand.")
        if not (self.folder / "run.json").exists():
            raise UserError(
                f"{self.folder} is not a run: it holds no run.json; 'highrank runs {self.folder}' lists those below it."
            )
        info = read_json(self.folder / "run.json", "run description (run.json)")
        if not isinstance(info, dict) or "recipe" not in info:
            raise UserError(f"{self.folder / 'run.json'} does not describe a highrank run.")
        return info

    @property
    def is_export(self) -> bool:
        """Whether this is no run but an export of one, which has a run.json, too."""
        return (self.folder / INDEX).exists() and not self.checkpoint_file.exists()

    def refuse_export(self) -> None:
        """An export has no checkpoint and no model: what goes on with it would begin from nothing."""
        if self.is_export:
            made = f"'highrank import {shlex.quote(str(self.folder))}'"
            raise UserError(f"{self.folder} is an export, not a run: make one of it with {made}.")

    def recipe(self) -> Recipe:
        return from_resolved(self.info()["recipe"], str(self.folder / "run.json"))

    def words(self) -> list[str]:
        words = read_json(self.folder / "vocabulary.json", "vocabulary")
        if not isinstance(words, list):
            raise UserError(f"{self.folder / 'vocabulary.json'} is not a list of words.")
        return words

    def load_weights(self, model: LanguageModel) -> None:
        """Put the best weights into `model`."""
        self.refuse_export()
        file = self.model_file
        if self.checkpoint_file.exists() and not file.exists():
            raise UserError(f"{self.folder} has no trained weights yet: let it finish an epoch first.")
        copy_weights(model, read_tensors(file, "trained model"), file)

    def summary(self) -> dict[str, Any] | None:
        if not self.summary_file.exists():
            return None
        summary = read_json(self.summary_file, "summary")
        if said := wrong(summary, SUMMARY):
            raise UserError(f"{self.summary_file} is not a summary of a run ({said}): remove it, and it is made anew.")
        return dict(summary)

    def metrics(self) -> list[dict[str, Any]]:
        return read_metrics(self.metrics_file)

    def epochs(self, last: int | None = None) -> list[dict[str, Any]]:
        """Those of whole epochs, up to `last`: a run that was killed may have told more than its checkpoint knows."""
        epochs = [line for line in self.metrics() if line["kind"] == "epoch"]
        return [line for line in epochs if last is None or line["epoch"] <= last]

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time trains in a folder; where the system has no such locks, nobody is kept out."""
        try:
            import fcntl
        except ImportError:
            yield
            return
        with open(self.folder / ".lock", "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(f"another process is training in {self.folder}: wait for it or stop it.") from None
            yield


def read_metrics(file: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl, or of an export's curve; none where an import brought none."""
    if not file.exists():
        return []
    try:
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        told = [json.loads(line) for line in lines if line.endswith("\n")]  # a kill may leave half of one
        for number, line in enumerate(told, start=1):
            if said := wrong(line, LINE) or (wrong(line, EPOCH) if line["kind"] == "epoch" else ""):
                raise ValueError(f"line {number}: {said}")
    except (OSError, ValueError) as error:
        raise UserError(f"{file} is damaged ({error}): restore it or start anew.") from None
    return told


def copy_weights(model: LanguageModel, tensors: dict[str, torch.Tensor], where: Path) -> None:
    """Set every parameter from `tensors`; names and shapes must be exactly the model's (tied ones appear once)."""
    parameters = dict(model.named_parameters())
    for name in parameters.keys() ^ tensors.keys():
        problem = "lacks" if name in parameters else "has the unexpected"
        raise UserError(f"{where} belongs to another model: it {problem} tensor {name}.")
    with torch.no_grad():
        for name, parameter in parameters.items():
            if parameter.shape != tensors[name].shape:
                raise UserError(
                    f"{where} belongs to another model: {name} is {tuple(tensors[name].shape)} there and "
                    f"{tuple(parameter.shape)} in the recipe."
                )
            parameter.copy_(tensors[name])


class Loaded(NamedTuple):
    model: LanguageModel  # in evaluation mode
    words: list[str]  # the vocabulary by id
    recipe: Recipe


def load(run: str | Path, device: str | torch.device = "cpu") -> Loaded:
    """The best model of a run, its vocabulary and its recipe.

    >>> model, words, recipe = highrank.load("runs/ptb-mos")  # doctest: +SKIP
    """
    opened = Run(Path(run))
    recipe, words = opened.recipe(), opened.words()
    model = build_model(recipe.model, len(words))
    opened.load_weights(model)
    return Loaded(model.to(device).eval(), words, recipe)


def run_corpus(folder: Path, data_dir: Path | None) -> Corpus:
    """The corpus a run was trained on, found again and checked to be the same."""
    run = Run(folder)
    info = run.info()
    stored = info.get("data_dir")
    if data_dir is None and stored and Path(stored).is_dir():  # not so on the machine a run was carried to
        data_dir = Path(stored)
    spec = run.recipe().data
    name = spec.corpus
    if Path(name).is_absolute() and not own_folder(name, data_dir):  # moved since, or left on another machine
        try:
            name = str(find_folder(Path(name).name, data_dir).resolve())
        except UserError:
            raise UserError(
                f"the text that {folder} was trained on is not at {name}: say where it is now with --data-dir."
            ) from None
    corpus = load_corpus(name, data_dir, spec.level)
    if corpus.fingerprint != info.get("corpus_fingerprint"):
        raise UserError(f"the text of {corpus.name} is not the one that {folder} was trained on: use the same files.")
    return corpus
