"""A run folder, which holds everything about one training run.

run.json                     recipe, corpus and provenance
vocabulary.json              the words by id
tokenizer.json               how text becomes ids, if the corpus has a tokenizer
checkpoint.json              the state of training; it names the two files below
checkpoint-*.safetensors     the tensors that training continues from
model-<epoch>.safetensors    the best weights on validation so far (averaged ones, once averaging has started)
metrics.jsonl                one line per epoch, and one every few seconds during an epoch
summary.json                 perplexities, once the run has ended or paused
evaluations.jsonl            dynamic evaluation and the cache, one line per finished split (`highrank record`)
"""

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import torch

from highrank.data.catalog import Level
from highrank.data.corpus import Corpus
from highrank.data.dialog import DialogCorpus
from highrank.data.tokenizer import FILE_NAME as TOKENIZER
from highrank.data.tokenizer import TextCodec
from highrank.errors import UserError
from highrank.files import new_folder, read_tensors, write_json, write_text
from highrank.models import LanguageModel
from highrank.models.seq2seq import Seq2Seq
from highrank.recipes import AnyRecipe, DialogRecipe, Recipe
from highrank.recipes.settings import from_resolved
from highrank.runs import checkpoint as checkpoints
from highrank.runs.metrics import read_epochs
from highrank.runs.provenance import Provenance, provenance
from highrank.schema import read_as, to_json
from highrank.training.callbacks import EpochMetrics
from highrank.training.state import Weights, set_weights


@dataclass(frozen=True)
class RunInfo:
    """The format of run.json."""

    recipe: dict[str, Any]  # as `Recipe.resolved` returns it
    corpus_fingerprint: str
    corpus_level: Level
    data_dir: str | None  # absolute path; None: the default folder
    provenance: Provenance
    init_from: str | None = None  # the run that this one started from, as an absolute path


@dataclass(frozen=True)
class Run:
    """Paths and contents of a run folder."""

    folder: Path

    @property
    def metrics_file(self) -> Path:
        return self.folder / "metrics.jsonl"

    @property
    def summary_file(self) -> Path:
        return self.folder / "summary.json"

    @property
    def model_file(self) -> Path | None:
        """The file of the best weights; None before the first epoch has ended, and for an export."""
        if not self.has_checkpoint():
            return None
        best = checkpoints.read(self.folder).best
        return None if best is None else self.folder / best

    def exists(self) -> bool:
        """Return whether the folder has a run.json, as runs and exports have."""
        return (self.folder / "run.json").exists()

    def has_checkpoint(self) -> bool:
        """Return whether training has saved a checkpoint."""
        return checkpoints.has_checkpoint(self.folder)

    def create(
        self,
        recipe: AnyRecipe,
        corpus: Corpus | DialogCorpus,
        device: torch.device,
        data_dir: Path | None,
        init_from: Path | None = None,
    ) -> None:
        """Create the folder of a new run, with run.json and vocabulary.json."""
        new_folder(self.folder)
        info = RunInfo(
            recipe=recipe.resolved(),
            corpus_fingerprint=corpus.fingerprint,
            corpus_level=corpus.level,
            data_dir=None if data_dir is None else str(data_dir.resolve()),
            provenance=Provenance(**provenance(device)),
            init_from=None if init_from is None else str(init_from.resolve()),
        )
        write_json(self.folder / "vocabulary.json", corpus.words)
        if isinstance(corpus, Corpus) and corpus.tokenizer is not None:
            write_text(self.folder / TOKENIZER, corpus.tokenizer)
        write_json(self.folder / "run.json", to_json(info))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from training in this folder during the block."""
        try:
            with filelock.FileLock(self.folder / ".lock", timeout=0):
                yield
        except filelock.Timeout:
            raise UserError(f"another process is training in {self.folder}: wait for it or stop it.") from None

    def info(self) -> RunInfo:
        """Read run.json of a run or an export. Raise a UserError if there is none."""
        path = self.folder / "run.json"
        if not path.exists():
            raise UserError(f"{self.folder} is not a run: it has no run.json. List your runs with 'highrank runs'.")
        return read_as(RunInfo, path, "run description")

    def recipe(self) -> AnyRecipe:
        """Return the recipe of the run."""
        return from_resolved(self.info().recipe, str(self.folder / "run.json"))

    def language_recipe(self) -> Recipe:
        """Return the recipe of a language model. Raise a UserError for a dialog model."""
        recipe = self.recipe()
        if isinstance(recipe, DialogRecipe):
            raise UserError(
                f"{self.folder} is a dialog model, not a language model: 'highrank evaluate' and 'highrank chat' "
                "work with it."
            )
        return recipe

    def words(self) -> list[str]:
        """Return the vocabulary by id."""
        return read_as(list[str], self.folder / "vocabulary.json", "vocabulary")

    def codec(self) -> TextCodec:
        """Return the codec that turns text into ids of the vocabulary, and back."""
        path = self.folder / TOKENIZER
        tokenizer = path.read_text(encoding="utf-8") if path.exists() else None
        return TextCodec(self.words(), self.info().corpus_level, tokenizer)

    def epochs(self, last: int | None = None) -> list[EpochMetrics]:
        """Return the metrics of completed epochs, up to and including `last`.

        Without `last`, a run that was killed may include epochs after its last checkpoint.
        """
        return [metrics for metrics in read_epochs(self.metrics_file) if last is None or metrics.epoch <= last]

    def best_weights(self) -> Weights:
        """Read the best weights on validation."""
        return read_tensors(self.require_weights(), "trained model")

    def require_weights(self) -> Path:
        """Return the file of the best weights. Raise a UserError if there is none yet."""
        self.require_run()
        file = self.model_file
        if file is None:
            raise UserError(f"{self.folder} has no trained weights yet: train it for at least one epoch.")
        return file

    def load_weights(self, model: LanguageModel | Seq2Seq) -> None:
        """Copy the best weights into `model`."""
        weights = self.best_weights()
        try:
            set_weights(model, weights)
        except ValueError as error:
            raise UserError(f"{self.model_file} does not fit the recipe of the run: {error}.") from None

    def require_run(self) -> None:
        """Raise a UserError unless the folder holds a run. An export has a run.json too, but no checkpoint."""
        self.info()
        if (self.folder / "index.json").exists():
            command = f"highrank import {shlex.quote(str(self.folder))}"
            raise UserError(f"{self.folder} is an export, not a run: turn it into a run with '{command}'.")


def display_names(folders: Sequence[Path]) -> list[str]:
    """Return the folders' own names, or their paths if two names are equal."""
    names = [folder.resolve().name for folder in folders]
    return names if len({*names}) == len(names) else [str(folder) for folder in folders]
