"""The perplexity tables: the paper's tables 1, 2 and 5, and the results of ten minutes on one GPU."""

from dataclasses import replace

from highrank.recipes import RECIPES, Recipe
from highrank.report import paper
from highrank.report.records import RecordedRun
from highrank.report.results import PERPLEXITY, Result, ResultTable, Row
from highrank.report.scores import STATES, Score, best_score, final_score, runs_of, score
from highrank.report.table import Code

CORPORA = {"ptb": "Penn Treebank", "wt2": "WikiText-2"}
HEADS = {"softmax": "AWD-LSTM", "moc": "AWD-LSTM-MoC", "mos": "AWD-LSTM-MoS"}
TEN_MINUTES = (500.0, 630.0)  # seconds of training


def own_recipes(corpus: str) -> list[Recipe]:
    """Return the recipes for one of the paper's corpora that the paper does not have."""
    return [recipe for recipe in RECIPES.values() if recipe.name.startswith(f"{corpus}-") and not recipe.paper]


def single_models(runs: list[RecordedRun], corpus: str, number: int) -> ResultTable:
    """Build table 1 or 2: trained, finetuned, with a cache, with dynamic evaluation. Our own recipes come last."""
    rows = []
    for state, description in STATES.items():
        for recipe in [RECIPES[f"{corpus}-softmax"], RECIPES[f"{corpus}-mos"], *own_recipes(corpus)]:
            paper_result = single_model_in_paper(recipe, state, number)
            ours = best_score(runs_of(recipe.name, runs), state)
            if paper_result is None and ours is None:
                continue
            result = _result(ours, paper_result, f"table {number}")
            if recipe.model.head == "softmax":
                result = replace(result, paper_digits=1)
            rows.append(Row((Code(recipe.name), f", {description}"), (result,), _training(result)))
    about = (
        "Perplexity of single models. The softmax is AWD-LSTM, for which the paper repeats the numbers of Merity et "
        "al. and Krause et al. The cache and dynamic evaluation start from the best weights of the run."
    )
    return ResultTable(corpus, CORPORA[corpus], about, "model", (PERPLEXITY,), rows, "trained for", (number,))


def ablation(runs: list[RecordedRun]) -> ResultTable:
    """Build table 5: the gain from the mixture itself, without finetuning."""
    rows = []
    for kind in ("mos", "moc", "softmax", "softmax-mos-hparams"):
        results = []
        for corpus in CORPORA:
            recipe = RECIPES[f"{corpus}-{kind}"]
            ours = best_score(runs_of(recipe.name, runs), "trained")
            results.append(_result(ours, _without_finetuning(recipe), "table 5"))
        rows.append(Row(HEADS.get(kind, "AWD-LSTM, MoS hyper-parameters"), tuple(results)))
    quantities = tuple(replace(PERPLEXITY, name=f"{corpus.upper()} valid / test") for corpus in CORPORA)
    about = "Perplexity without finetuning or dynamic evaluation."
    title = "The gain from the mixture itself"
    return ResultTable("ablation", title, about, "model", quantities, rows, paper_tables=(5,))


def ten_minutes(runs: list[RecordedRun]) -> ResultTable:
    """Build the table of equal wall time: each run was started once and stopped by its budget of ten minutes."""
    short = [run for run in runs if took_ten_minutes(run)]
    own = [recipe.name for corpus in CORPORA for recipe in own_recipes(corpus) if runs_of(recipe.name, short)]
    rows = []
    for name in [f"{corpus}-{head}" for corpus in CORPORA for head in HEADS] + own:
        paper_result = _without_finetuning(RECIPES[name])
        source = next((result.table for result in RECIPES[name].paper if not result.finetuned), "")
        for run in runs_of(name, short):
            result = _result(final_score(run), paper_result, source)
            rows.append(Row(Code(name), (result, _result(score(run, "dynamic"))), _training(result)))
        if not runs_of(name, short):
            rows.append(Row(Code(name), (_result(None, paper_result, source), Result())))
    quantities = (PERPLEXITY, replace(PERPLEXITY, name=STATES["dynamic"], in_paper=False))
    about = (
        "Perplexity after equal wall time on one GPU, including validation: runs from scratch, started once, that "
        f"their time budget stopped after {TEN_MINUTES[0]:.0f} to {TEN_MINUTES[1]:.0f} s. The paper's numbers are "
        "from complete schedules of hundreds of epochs, without finetuning."
    )
    return ResultTable("ten-minutes", "Ten minutes", about, "recipe", quantities, rows, "trained for")


def took_ten_minutes(run: RecordedRun) -> bool:
    """Return whether a run of a recipe's model was started once on a GPU and stopped by a budget of ten minutes."""
    shortest, longest = TEN_MINUTES
    stopped = run.record.outcome == "time-budget" and shortest <= run.record.seconds <= longest
    return stopped and run.has_recipe_model and run.on_gpu and [piece.epoch for piece in run.pieces()] == [0]


def single_model_in_paper(recipe: Recipe, state: str, number: int) -> paper.Pair | None:
    """Return the numbers that table 1 or 2 prints for a recipe."""
    if (recipe.name, state) in paper.SINGLE_MODELS:
        return paper.SINGLE_MODELS[recipe.name, state]
    for result in recipe.paper:
        if result.table == f"table {number}" and state == ("finetuned" if result.finetuned else "trained"):
            return paper.Pair(result.valid, result.test)
    return None


def _without_finetuning(recipe: Recipe) -> paper.Pair | None:
    return next((paper.Pair(result.valid, result.test) for result in recipe.paper if not result.finetuned), None)


def _result(ours: Score | None, paper_result: paper.Pair | None = None, source: str = "") -> Result:
    source = source if paper_result else ""
    if ours is None:
        return Result(paper_result, source=source)
    return Result(paper_result, (ours.valid, ours.test), ours.origin(), source)


def _training(result: Result) -> str:
    return result.origin.training() if result.origin else ""
