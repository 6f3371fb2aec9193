"""The paper's tables 3 (One Billion Word) and 12 (text8): training, validation and test, and numbers of parameters."""

from collections.abc import Callable
from dataclasses import replace

from highrank.evaluation.score import bits_per_character
from highrank.recipes import Recipe, one_billion, text8
from highrank.report import paper
from highrank.report.perplexity import best_run
from highrank.report.records import RecordedRun
from highrank.report.results import Quantity, Result, ResultTable
from highrank.report.table import Cell

SCORES = Quantity("train / valid / test", ("train", "valid", "test"))
PARAMETERS = Quantity("parameters", unit="M")


def billion_table(runs: list[RecordedRun]) -> ResultTable:
    """Build table 3: perplexities on One Billion Word."""
    rows = [(Cell(code=recipe.name), _results(recipe, runs, lambda ppl: ppl)) for recipe in one_billion.RECIPES]
    return ResultTable("recipe", [SCORES, replace(PARAMETERS, digits=0)], rows, show_training=True)


def characters_table(runs: list[RecordedRun]) -> ResultTable:
    """Build table 12, in bits: with 27 characters a softmax is not limited in rank; a mixture should gain nothing."""
    rows = []
    for recipe in text8.RECIPES:
        label = Cell(f", hidden {recipe.model.hidden_sizes[0]}, embedding {recipe.model.embed_dim}", code=recipe.name)
        rows.append((label, _results(recipe, runs, bits_per_character)))
    return ResultTable("recipe", [replace(SCORES, digits=3), PARAMETERS], rows, show_training=True)


def _results(recipe: Recipe, runs: list[RecordedRun], score: Callable[[float], float]) -> list[Result]:
    """Return scores and parameters of the run with the best validation score; `score` converts a perplexity."""
    (printed,) = recipe.paper
    assert printed.train is not None
    in_paper = (printed.train, printed.valid, printed.test)
    parameters_in_paper = (paper.PARAMETERS[recipe.name],)
    run = best_run(recipe, runs)
    if run is None:
        return [Result(in_paper, paper_digits=2), Result(parameters_in_paper)]
    record = run.record
    origin = run.origin(record.epochs, record.seconds, record.corpus_extent or "")
    # The mean over the epoch of the best weights: the loss as training saw it, with dropout.
    train_ppl = record.curve.train_ppl[record.curve.epoch.index(record.best_epoch)]
    perplexities = (train_ppl or float("inf"), record.valid_ppl, record.test_ppl)
    return [
        Result(in_paper, tuple(map(score, perplexities)), origin, paper_digits=2),
        Result(parameters_in_paper, (record.parameters / 1e6,), origin),
    ]
