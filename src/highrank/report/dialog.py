"""The table of dialogs on Switchboard, the paper's table 4."""

from highrank.recipes import DialogRecipe
from highrank.recipes.switchboard import RECIPES
from highrank.report.perplexity import best_run
from highrank.report.records import RecordedRun
from highrank.report.results import Quantity, Result, ResultTable
from highrank.report.table import Cell

QUANTITIES = [
    Quantity("perplexity"),
    *(Quantity(f"BLEU-{n} precision / recall", ("precision", "recall"), digits=3) for n in (1, 2, 3, 4)),
    Quantity("corpus BLEU", digits=4, in_paper=False),
]


def dialog_table(runs: list[RecordedRun]) -> ResultTable:
    """Build table 4, on test. The training dialogs may differ from the paper's; records tell how many there were."""
    rows = [(Cell(code=recipe.name), _results(recipe, runs)) for recipe in RECIPES]
    return ResultTable("recipe", QUANTITIES, rows, show_training=True, transposed=True)


def _results(recipe: DialogRecipe, runs: list[RecordedRun]) -> list[Result]:
    """Return the results of the run with the best perplexity on validation."""
    printed = recipe.paper
    assert printed is not None
    bleu_in_paper = list(zip(printed.precision, printed.recall, strict=True))
    run = best_run(recipe, [run for run in runs if run.record.dialog])
    if run is None:
        return [Result((printed.perplexity,)), *map(Result, bleu_in_paper), Result()]
    record = run.record
    scores = record.dialog
    assert scores is not None
    origin = run.origin(record.epochs, record.seconds, record.corpus_extent or "")
    bleu = zip(bleu_in_paper, zip(scores.precision, scores.recall, strict=True), strict=True)
    return [
        Result((printed.perplexity,), (record.test_ppl,), origin),
        *(Result(in_paper, ours, origin) for in_paper, ours in bleu),
        Result(None, (scores.corpus_bleu,), origin),
    ]
