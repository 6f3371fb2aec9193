"""A language we speak: three small AWD-LSTMs on Python's own text, one for each head, with equal parameter budgets."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from highrank.analysis import analyze, carrying_state
from highrank.data.corpus import Corpus
from highrank.errors import UserError
from highrank.recipes import RECIPES
from highrank.runs.checkpoint import load_progress
from highrank.runs.folder import Run, load
from highrank.runs.record import summarize
from highrank.training.callbacks import Listener
from highrank.training.loop import train

RECIPE_NAMES = ("pydoc-softmax", "pydoc-moc", "pydoc-mos")
EPOCHS = 6
MADE_BY = "quickstart"


@dataclass(frozen=True)
class Trained:
    name: str
    folder: str
    parameters: int
    embed_dim: int
    valid_ppl: float
    test_ppl: float
    rank: int
    rank_bound: int | None
    matrix: tuple[int, int]  # rows and columns of the log-probability matrix
    curve: list[tuple[int, float]]  # epoch, validation perplexity
    singular_values: list[float]
    seconds: float


def check_folder(folder: Path) -> None:
    """Refuse to write over runs that an earlier quickstart did not make, or that were trained further since."""
    for name in RECIPE_NAMES:
        run = Run(folder / name)
        if not run.folder.exists():
            continue
        try:
            mine = run.info().get("made_by") == MADE_BY and load_progress(run.folder).epoch <= EPOCHS
        except UserError:
            mine = False
        if not mine:
            raise UserError(
                f"{run.folder} holds something that quickstart did not make, or a run trained further since: "
                "move it away or choose another --out."
            )


def train_spoken(corpus: Corpus, folder: Path, name: str, seed: int, listener: Listener) -> Trained:
    recipe = RECIPES[name]
    recipe = replace(recipe, train=replace(recipe.train, seed=seed))
    run, device = Run(folder / name), torch.device("cpu")
    shutil.rmtree(run.folder, ignore_errors=True)  # an earlier quickstart's: `check_folder` has looked
    outcome = train(recipe, corpus, run, device, max_epochs=EPOCHS, listener=listener, made_by=MADE_BY)
    summary = summarize(run, corpus, device, outcome)

    model = load(run.folder).model.double()
    ids = torch.cat([corpus.splits["valid"], corpus.splits["test"]])
    result = analyze(carrying_state(model), ids, contexts=0, window=500)
    return Trained(
        name=name,
        folder=str(run.folder),
        parameters=summary["parameters"],
        embed_dim=recipe.model.embed_dim,
        valid_ppl=summary["valid_ppl"],
        test_ppl=summary["test_ppl"],
        rank=result.rank,
        rank_bound=None if recipe.model.head == "mos" else recipe.model.embed_dim + 2,
        matrix=(result.tokens, result.vocabulary),
        curve=[(line["epoch"], line["valid_ppl"]) for line in run.epochs()],
        singular_values=result.singular_values.tolist(),
        seconds=summary["seconds"],
    )
