"""The corpus of a recipe, and the one that a run was trained on."""

from pathlib import Path

import torch

from highrank.data.catalog import SPLITS, Level
from highrank.data.corpus import Corpus, load_corpus
from highrank.data.dialog import DialogCorpus, load_dialog_corpus
from highrank.data.folders import find_folder, own_folder
from highrank.data.own_text import read_description
from highrank.errors import UserError
from highrank.files import AnyPath, optional_path
from highrank.memory import require_bytes
from highrank.recipes import AnyRecipe, DialogRecipe
from highrank.recipes.settings import override
from highrank.runs.folder import Run

# Peak memory per byte of text while it is read and cut into columns, as measured.
MEMORY_PER_BYTE: dict[Level, int] = {"word": 9, "char": 23, "bpe": 9}


def load_data(recipe: AnyRecipe, data_dir: Path | None) -> Corpus | DialogCorpus:
    """Load the corpus of a recipe."""
    if not recipe.data.corpus:
        raise UserError(
            f"{recipe.name} is for your own text: name a folder made by 'highrank data make' with "
            "--set data.corpus=FOLDER (in Python, the argument corpus)."
        )
    if isinstance(recipe, DialogRecipe):
        return load_dialog_corpus(recipe.data, data_dir)
    if folder := own_folder(recipe.data.corpus, data_dir):
        _require_memory(folder, recipe.data.level)
    return load_corpus(recipe.data.corpus, data_dir, recipe.data.level)


def _require_memory(folder: Path, level: Level) -> None:
    """Raise a UserError if the text of a folder is too large to be held in memory as ids."""
    if made := read_description(folder):
        level = made.level
    files = [folder / f"{split}.txt" for split in SPLITS]
    n_bytes = sum(file.stat().st_size for file in files if file.exists())
    require_bytes(
        n_bytes * MEMORY_PER_BYTE[level],
        torch.device("cpu"),
        f"reading {folder}",
        "keep its ids on disk with 'highrank data prepare', or use less text",
    )


def run_corpus(folder: Path, data_dir: AnyPath | None) -> Corpus:
    """Load the text that a language model was trained on, and check that it has not changed."""
    Run(folder).language_recipe()
    corpus = run_data(folder, data_dir)
    assert isinstance(corpus, Corpus)
    return corpus


def run_data(folder: Path, data_dir: AnyPath | None) -> Corpus | DialogCorpus:
    """Load the corpus that a run was trained on, and check that its text has not changed."""
    run = Run(folder)
    data_dir = run_data_dir(run, data_dir)
    recipe = run.recipe()
    name = recipe.data.corpus
    suffix = ".jsonl" if isinstance(recipe, DialogRecipe) else ".txt"
    if Path(name).is_absolute() and not own_folder(name, data_dir, suffix):  # the user's own corpus has moved
        try:
            name = str(find_folder(Path(name).name, data_dir, suffix).resolve())
        except UserError:
            raise UserError(
                f"the corpus that {folder} was trained on is not at {name}: move it back, or name the folder that "
                "contains it with --data-dir (data_dir=...)."
            ) from None
    corpus = load_data(override(recipe, [f"data.corpus={name}"]), data_dir)
    if corpus.fingerprint != run.info().corpus_fingerprint:
        raise UserError(f"the text of {corpus.name} has changed since {folder} was trained on it: restore the files.")
    return corpus


def run_data_dir(run: Run, data_dir: AnyPath | None) -> Path | None:
    """Return `data_dir`, or else the one that the run started with, unless it was on another machine."""
    stored = run.info().data_dir
    if data_dir is None and stored is not None and Path(stored).is_dir():
        return Path(stored)
    return optional_path(data_dir)
