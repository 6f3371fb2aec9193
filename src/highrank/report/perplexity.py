"""The perplexity tables: the headline, the paper's tables 1, 2 and 5, our own recipes, and ten minutes.

Among the runs of a recipe, the one with the best validation perplexity represents it; test perplexity chooses nothing.
"""

from collections.abc import Iterable
from dataclasses import replace

from highrank.recipes import RECIPES, AnyRecipe, Recipe
from highrank.report import paper
from highrank.report.records import RecordedRun
from highrank.report.results import NOT_RUN, PERPLEXITY, Quantity, Result, ResultTable
from highrank.report.table import Cell, Column, Table

CORPORA = {"ptb": "Penn Treebank", "wt2": "WikiText-2"}
HEADS = {"softmax": "AWD-LSTM", "moc": "AWD-LSTM-MoC", "mos": "AWD-LSTM-MoS"}
STATES = {
    "trained": "without finetuning",
    "finetuned": "finetuned",
    "cache": "+ cache",
    "dynamic": "+ dynamic evaluation",
}
DYNAMIC = replace(PERPLEXITY, name=STATES["dynamic"], in_paper=False)
TEN_MINUTES = (500.0, 630.0)  # seconds of training


def result_in_state(run: RecordedRun, state: str) -> Result:
    """Return the perplexities of a run in one of STATES; without numbers if it has none."""
    record = run.record
    if state == "trained":
        first = record.stages[0]
        return Result(ours=(first.valid_ppl, first.test_ppl), origin=run.origin(first.epochs, first.seconds))
    if state == "finetuned":
        if not run.is_finetuned:
            return Result()
        return Result(ours=(record.valid_ppl, record.test_ppl), origin=run.origin(record.epochs, record.seconds))
    both = (record.cache, record.cache_tuned) if state == "cache" else (record.dynamic, record.dynamic_tuned)
    best = min(filter(None, both), key=lambda one: one.valid_ppl, default=None)
    if best is None:
        return Result()
    remark = "settings tuned on valid" if best.tuning else ""
    return Result(ours=(best.valid_ppl, best.test_ppl), origin=run.origin(record.epochs, record.seconds, remark))


def final_result(run: RecordedRun) -> Result:
    """Return the perplexities of a run's best weights, finetuned or not."""
    return result_in_state(run, "finetuned" if run.is_finetuned else "trained")


def runs_of(recipe: AnyRecipe, runs: Iterable[RecordedRun]) -> list[RecordedRun]:
    """Return the runs of a recipe's own model on its own text, trained from random weights."""
    own = [run for run in runs if run.record.recipe == recipe.name and run.has_recipe_model]
    return [run for run in own if run.record.init_from is None]


def best_run(recipe: AnyRecipe, runs: Iterable[RecordedRun]) -> RecordedRun | None:
    """Return the run of a recipe with the lowest validation perplexity."""
    return min(runs_of(recipe, runs), key=lambda run: run.record.valid_ppl, default=None)


def own_recipes(corpus: str) -> list[Recipe]:
    """Return the recipes for one of the paper's corpora that the paper does not have."""
    return [recipe for recipe in RECIPES.values() if recipe.name.startswith(f"{corpus}-") and not recipe.paper]


def in_paper(recipe: Recipe, finetuned: bool = False) -> paper.Pair | None:
    """Return the perplexities that the paper prints for a recipe."""
    results = [paper.Pair(result.valid, result.test) for result in recipe.paper if result.finetuned == finetuned]
    return results[0] if results else None


def in_tables(recipe: Recipe, state: str) -> paper.Pair | None:
    """Return the perplexities of a recipe in one of STATES that the paper's tables 1 and 2 print."""
    printed = paper.SINGLE_MODELS.get((recipe.name, state))
    if printed is None and state in ("trained", "finetuned"):
        return in_paper(recipe, state == "finetuned")
    return printed


def headline(runs: list[RecordedRun]) -> Table:
    """Build the README's table: test perplexity of the paper's mixture, the best of ours, and the best published."""
    results = [Column("paper"), Column("ours"), Column("how", "left"), Column("best AWD-LSTM with a mixture", "left")]
    rows = [_headline_row(corpus, state, runs) for corpus in CORPORA for state in ("trained", "finetuned", "dynamic")]
    return Table([Column("test perplexity", "left"), *results], rows)


def _headline_row(corpus: str, state: str, runs: list[RecordedRun]) -> list[Cell]:
    test = Quantity("test")
    recipe = RECIPES[f"{corpus}-mos"]
    printed = in_tables(recipe, state)
    published = paper.BEST_MIXTURE.get((recipe.name, state))
    ours = [NOT_RUN, Cell()]
    results = {one.name: _best(one, runs, state) for one in (recipe, *own_recipes(corpus))}
    if finished := {name: result for name, result in results.items() if result.ours}:
        name, best = min(finished.items(), key=lambda item: item[1].ours or ())
        on_test = replace(best, ours=(best.ours or ())[1:])
        ours = [on_test.our_cell(test), Cell(f", {best.training().text}", code=name)]
    return [
        Cell(f"{CORPORA[corpus]}, {STATES[state]}"),
        Cell(test.format([printed.test]) if printed else "-"),
        *ours,
        Cell(f"{test.format([published.test])} ({published.source})" if published else "-"),
    ]


def single_models(runs: list[RecordedRun], corpus: str) -> ResultTable:
    """Build table 1 or 2: trained, finetuned, with a cache, with dynamic evaluation."""
    rows = []
    for state, description in STATES.items():
        for recipe in (RECIPES[f"{corpus}-softmax"], RECIPES[f"{corpus}-mos"]):
            digits = 1 if recipe.model.head == "softmax" else None
            result = replace(_best(recipe, runs, state), paper=in_tables(recipe, state), paper_digits=digits)
            if result.paper or result.ours:
                rows.append((Cell(f", {description}", code=recipe.name), [result]))
    return ResultTable("model", [PERPLEXITY], rows, show_training=True)


def own_models(runs: list[RecordedRun]) -> ResultTable:
    """Build the table of the recipes that go beyond the paper."""
    rows = []
    for recipe in (recipe for corpus in CORPORA for recipe in own_recipes(corpus)):
        results = {state: _best(recipe, runs, state) for state in STATES}
        if not any(result.ours for result in results.values()):
            rows.append((Cell(code=recipe.name), [Result()]))
        for state, result in results.items():
            if result.ours:
                rows.append((Cell(f", {STATES[state]}", code=recipe.name), [result]))
    return ResultTable("model", [replace(PERPLEXITY, in_paper=False)], rows, show_training=True)


def _best(recipe: Recipe, runs: list[RecordedRun], state: str) -> Result:
    """Return the best perplexities among the runs of a recipe in one of STATES."""
    results = [result_in_state(run, state) for run in runs_of(recipe, runs)]
    return min((one for one in results if one.ours), key=lambda one: one.ours or (), default=Result())


def ablation(runs: list[RecordedRun]) -> ResultTable:
    """Build table 5: the gain from the mixture itself, without finetuning."""
    rows = []
    for kind in ("mos", "moc", "softmax", "softmax-mos-hparams"):
        recipes = [RECIPES[f"{corpus}-{kind}"] for corpus in CORPORA]
        results = [replace(_best(recipe, runs, "trained"), paper=in_paper(recipe)) for recipe in recipes]
        rows.append((Cell(HEADS.get(kind, "AWD-LSTM, MoS hyper-parameters")), results))
    return ResultTable("model", [replace(PERPLEXITY, name=f"{name.upper()} valid / test") for name in CORPORA], rows)


def ten_minutes(runs: list[RecordedRun]) -> ResultTable:
    """Build the table of equal wall time: each run was started once and stopped by its budget of ten minutes."""
    short = [run for run in runs if took_ten_minutes(run)]
    rows = []
    recipes = [RECIPES[f"{corpus}-{head}"] for corpus in CORPORA for head in HEADS]
    for recipe in recipes + [recipe for corpus in CORPORA for recipe in own_recipes(corpus)]:
        if run := best_run(recipe, short):
            results = [replace(final_result(run), paper=in_paper(recipe)), result_in_state(run, "dynamic")]
            rows.append((Cell(code=recipe.name), results))
        elif recipe.paper:
            rows.append((Cell(code=recipe.name), [Result(in_paper(recipe)), Result()]))
    return ResultTable("recipe", [PERPLEXITY, DYNAMIC], rows, show_training=True)


def took_ten_minutes(run: RecordedRun) -> bool:
    """Return whether a run was started once on a GPU and stopped by a budget of ten minutes."""
    shortest, longest = TEN_MINUTES
    record = run.record
    stopped = record.outcome == "time-budget" and shortest <= record.seconds <= longest
    on_cpu = " thread" in record.pieces[0].machine  # provenance counts the threads of a CPU
    return stopped and not on_cpu and [piece.epoch for piece in record.pieces] == [0]
