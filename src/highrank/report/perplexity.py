"""The perplexity tables: the paper's tables 1, 2 and 5, and ten minutes of one GPU for every recipe."""

from dataclasses import replace

from highrank.recipes import RECIPES, Recipe
from highrank.report import paper
from highrank.report.choice import STATES, best, cell, of_state, runs_of, trained_for
from highrank.report.records import Record
from highrank.report.results import VALID_TEST, Cell, Column, Row, Table

PERPLEXITY = Column("valid / test", VALID_TEST)
HEADS = {"softmax": "AWD-LSTM", "moc": "AWD-LSTM-MoC", "mos": "AWD-LSTM-MoS"}
TEN_MINUTES = (500.0, 630.0)  # seconds of training: ten minutes with validation, or a little less


def single_models(records: list[Record], prefix: str, title: str, table: int) -> Table:
    """Table 1 or 2: trained, finetuned, and adapting to what it reads; then recipes that are ours alone."""
    rows = []
    for state in STATES:
        for recipe in [RECIPES[f"{prefix}-softmax"], RECIPES[f"{prefix}-mos"], *_own(prefix)]:
            printed = in_paper(recipe, state, table)
            found = best(runs_of(recipe.name, records), of_state(state))
            if printed is None and found is None:
                continue
            one = cell(found, printed, f"table {table}" if printed else "")
            if recipe.model.head == "softmax":
                one = replace(one, paper_digits=1)  # as its authors print it
            rows.append(Row(f"`{recipe.name}`, {STATES[state]}", (one,), trained_for(one.origin)))
    about = (
        "Perplexity of single models. `softmax` is AWD-LSTM, for which the paper repeats the numbers of Merity et al. "
        "and Krause et al. Adapting models start from the best weights of the run."
    )
    return Table(prefix, title, about, "model", (PERPLEXITY,), rows, "trained for", (table,))


def ablation(records: list[Record]) -> Table:
    """Table 5: what the mixture itself brings, without finetuning."""
    rows = []
    for kind in ("mos", "moc", "softmax", "softmax-mos-hparams"):
        cells: list[Cell] = []
        for prefix in ("ptb", "wt2"):
            name = f"{prefix}-{kind}"
            found = best(runs_of(name, records), of_state("trained"))
            cells.append(cell(found, _whole(RECIPES[name]), "table 5"))
        rows.append(Row(HEADS.get(kind, "AWD-LSTM, MoS hyper-parameters"), tuple(cells)))
    columns = tuple(Column(f"{name} valid / test", VALID_TEST) for name in ("PTB", "WT2"))
    about = "Perplexity, without finetuning or dynamic evaluation. Each number of ours links to its record."
    return Table("ablation", "What the mixture itself brings", about, "model", columns, rows, tables=(5,))


def ten_minutes(records: list[Record]) -> Table:
    """Equal wall time: every run that was started once and stopped by its budget after about ten minutes."""
    rows = []
    short = [record for record in records if in_ten_minutes(record)]
    own = [recipe.name for prefix in ("ptb", "wt2") for recipe in _own(prefix) if runs_of(recipe.name, short)]
    for name in [f"{prefix}-{head}" for prefix in ("ptb", "wt2") for head in HEADS] + own:
        printed = _whole(RECIPES[name])
        source = next((p.table for p in RECIPES[name].paper if not p.finetuned), "")
        for record in runs_of(name, short):
            one = cell((record, record.data), printed, source)
            dynamic = best([record], of_state("dynamic"))
            rows.append(Row(f"`{name}`", (one, cell(dynamic)), trained_for(one.origin)))
        if not runs_of(name, short):
            rows.append(Row(f"`{name}`", (Cell(printed, source=source), Cell())))
    columns = (PERPLEXITY, Column("+ dynamic evaluation", VALID_TEST, paper=False))
    about = (
        "Perplexity after equal wall time on one GPU, validation included: runs from scratch, started once, that "
        f"their time budget stopped after {TEN_MINUTES[0]:.0f} to {TEN_MINUTES[1]:.0f} s. The paper's numbers are of "
        "whole schedules, hundreds of epochs, without finetuning."
    )
    return Table("ten-minutes", "Ten minutes", about, "recipe", columns, rows, "trained for")


def in_ten_minutes(record: Record) -> bool:
    """The recipe's model on its text, started once, stopped by its time budget near ten minutes, on a GPU."""
    low, high = TEN_MINUTES
    stopped = record.data.get("outcome") == "time-budget" and low <= record.data["seconds"] <= high
    return record.same_model and record.on_gpu and len(record.pieces()) == 1 and stopped


def _own(prefix: str) -> list[Recipe]:
    """Recipes for one of the paper's corpora that the paper does not have."""
    return [r for r in RECIPES.values() if r.name.startswith(f"{prefix}-") and not r.paper]


def in_paper(recipe: Recipe, state: str, table: int) -> paper.Pair | None:
    """What table 1 or 2 prints; the perplexities that belong to one recipe stand in the recipe."""
    if (recipe.name, state) in paper.SINGLE_MODELS:
        return paper.SINGLE_MODELS[recipe.name, state]
    for p in recipe.paper:
        if p.table == f"table {table}" and state == ("finetuned" if p.finetuned else "trained"):
            return paper.Pair(p.valid, p.test)
    return None


def _whole(recipe: Recipe) -> paper.Pair | None:
    """The paper's perplexities after a whole schedule, without finetuning."""
    return next((paper.Pair(p.valid, p.test) for p in recipe.paper if not p.finetuned), None)
