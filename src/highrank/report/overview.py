"""Two overviews: the best run of each recipe beside the paper's numbers, and a list of all runs."""

from highrank.recipes import RECIPES
from highrank.report.perplexity import CORPORA, own_recipes
from highrank.report.records import RecordedRun
from highrank.report.results import NOT_RUN, PERPLEXITY, Section
from highrank.report.scores import Score, best_on_validation, final_score, runs_of, score
from highrank.report.table import Cell, Code, Column, Table


def best_runs(runs: list[RecordedRun], link: str) -> Section:
    """Return one row per recipe of the paper, then one per recipe of our own that was run."""
    own = [recipe for corpus in CORPORA for recipe in own_recipes(corpus) if runs_of(recipe.name, runs)]
    rows = []
    for recipe in [*(recipe for recipe in RECIPES.values() if recipe.paper), *own]:
        in_paper = {result.finetuned: PERPLEXITY.format((result.valid, result.test)) for result in recipe.paper}
        paper_cells = [Cell(in_paper.get(finetuned, "-"), style="paper") for finetuned in (False, True)]
        best = best_on_validation(final_score(run) for run in runs_of(recipe.name, runs))
        if best is None:
            missing = [Cell(NOT_RUN, style="none") for _ in range(3)]
            rows.append([Cell(Code(recipe.name)), *missing, *paper_cells, Cell()])
            continue
        dynamic = score(best.run, "dynamic")
        training = best.origin().training() + ("; finetuned" if best.run.is_finetuned else "")
        cells = [Cell(training), Cell(_perplexity(best), strong=True)]
        cells.append(Cell(_perplexity(dynamic)) if dynamic else Cell(NOT_RUN, style="none"))
        record = Cell("record", f"{link}/{best.run.path}")
        rows.append([Cell(Code(recipe.name)), *cells, *paper_cells, record])
    columns = [Column("recipe", "left"), Column("trained for", "left"), Column("valid / test")]
    columns += [Column("+ dynamic evaluation"), Column("the paper's"), Column("finetuned"), Column("record", "left")]
    about = "The best run of each recipe, chosen on validation, beside the paper's results without and with finetuning."
    return Section("results", "Results", Table(columns, rows), about)


def all_runs(runs: list[RecordedRun], link: str) -> Section:
    """Return one row per record."""
    rows = []
    for run in runs:
        record = run.record
        finetuned = ", finetuned" if run.is_finetuned else ""
        changes = "".join(f", {key}={value}" for key, value in run.changes.items())
        dynamic = score(run, "dynamic")
        rows.append(
            [
                Cell(run.file.removesuffix(".json"), f"{link}/{run.path}"),
                Cell((Code(run.recipe), finetuned, changes)),
                Cell(str(record.epochs)),
                Cell(f"{record.seconds / 60:.1f}"),
                Cell(_perplexity(final_score(run))),
                Cell(_perplexity(dynamic) if dynamic else ""),
                Cell(str(record.seed)),
                Cell((run.commit() or "")[:7]),
                Cell(run.machine()),
            ]
        )
    names = ("epochs", "minutes", "valid / test", "dynamic", "seed", "commit", "machine")
    columns = [Column("record", "left"), Column("run", "left"), *map(Column, names)]
    return Section("runs", "All runs", Table(columns, rows))


def _perplexity(one: Score) -> str:
    return PERPLEXITY.format((one.valid, one.test))
