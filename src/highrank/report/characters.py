"""The table of bits per character on text8, the paper's table 12."""

from highrank.evaluation.score import bits_per_character
from highrank.recipes import Recipe
from highrank.recipes.text8 import RECIPES
from highrank.report import paper
from highrank.report.perplexity import best_run
from highrank.report.records import RecordedRun
from highrank.report.results import Quantity, Result, ResultTable
from highrank.report.table import Cell

BITS = Quantity("train / valid / test", ("train", "valid", "test"), digits=3)
PARAMETERS = Quantity("parameters", unit="M")


def characters_table(runs: list[RecordedRun]) -> ResultTable:
    """Build table 12: with 27 characters a softmax is not limited in rank, so a mixture should gain nothing."""
    rows = []
    for recipe in RECIPES:
        label = Cell(f", hidden {recipe.model.hidden_sizes[0]}, embedding {recipe.model.embed_dim}", code=recipe.name)
        rows.append((label, _results(recipe, runs)))
    return ResultTable("recipe", [BITS, PARAMETERS], rows, show_training=True)


def _results(recipe: Recipe, runs: list[RecordedRun]) -> list[Result]:
    """Return the results of the run with the best validation score."""
    (printed,) = recipe.paper
    assert printed.train is not None
    in_paper = (printed.train, printed.valid, printed.test)
    parameters_in_paper = (paper.CHARACTER_PARAMETERS[recipe.name],)
    run = best_run(recipe, runs)
    if run is None:
        return [Result(in_paper, paper_digits=2), Result(parameters_in_paper)]
    record = run.record
    origin = run.origin(record.epochs, record.seconds, record.corpus_extent or "")
    # The mean over the epoch of the best weights: the loss as training saw it, with dropout.
    train_ppl = record.curve.train_ppl[record.curve.epoch.index(record.best_epoch)]
    scores = (train_ppl or float("inf"), record.valid_ppl, record.test_ppl)
    bits = tuple(bits_per_character(ppl) for ppl in scores)
    return [
        Result(in_paper, bits, origin, paper_digits=2),
        Result(parameters_in_paper, (record.parameters / 1e6,), origin),
    ]
