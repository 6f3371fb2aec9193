"""The tables of analysed models: the paper's tables 6 (rank), 7 (number of softmaxes) and 11 (pairwise divergence)."""

from collections.abc import Callable
from dataclasses import replace

from highrank.recipes import RECIPES
from highrank.report import paper
from highrank.report.perplexity import final_result
from highrank.report.records import RecordedAnalysis, RecordedRun
from highrank.report.results import Quantity, Result, ResultTable
from highrank.report.table import Cell

K_KEY = "model.n_components"
STUDY_RECIPE = "ptb-mos-plus"  # of the runs in the table over K
STUDY_EPOCHS = 90
STUDY_CHANGES = {K_KEY, "train.eval_batch_size"}  # settings in which they may differ from the recipe
HEADS = {"ptb-softmax": "Softmax", "ptb-moc": "MoC", "ptb-mos": "MoS"}
SPLITS = ("valid", "test")


def rank_table(analyses: list[RecordedAnalysis]) -> ResultTable:
    """Build table 6."""
    return _table_by_head(analyses, paper.RANK, 0, _rank)


def kld_table(analyses: list[RecordedAnalysis]) -> ResultTable:
    """Build table 11."""
    return _table_by_head([analysis for analysis in analyses if analysis.model.kld], paper.KLD, 3, _kld)


def components_table(runs: list[RecordedRun], analyses: list[RecordedAnalysis]) -> ResultTable:
    """Build table 7: perplexity and rank over K, the number of softmaxes, for runs that differ in K alone."""
    recipe = RECIPES[STUDY_RECIPE]
    study = {}
    for run in sorted(runs, key=lambda run: -run.record.valid_ppl):  # of runs with equal K, the best comes last
        is_of_study = run.record.recipe == STUDY_RECIPE and run.record.epochs == STUDY_EPOCHS
        if is_of_study and not run.is_finetuned and set(run.changes) <= STUDY_CHANGES:
            study[run.changes.get(K_KEY, recipe.model.n_components)] = run
    by_k: dict[int, RecordedAnalysis] = {}
    for analysis in sorted(analyses, key=_order):
        if analysis.model.recipe == STUDY_RECIPE and analysis.model.epochs == STUDY_EPOCHS:
            by_k.setdefault(analysis.model.n_components, analysis)
    rows = []
    for k in sorted({*paper.COMPONENTS, *study, *by_k}):
        test, valid, rank, float32_rank, effective_rank = Result(), Result(), Result(), Result(), Result()
        if k in study:
            both = final_result(study[k])
            assert both.ours is not None
            valid, test = (replace(both, ours=(number,)) for number in both.ours)
        if k in by_k:
            rank = _rank(by_k[k])
            float32_rank = replace(rank, ours=(by_k[k].model.float32_rank,))
            effective_rank = Result(ours=(by_k[k].model.effective_rank,), origin=rank.origin)
        if k in paper.COMPONENTS:
            test = replace(test, paper=(paper.COMPONENTS[k].test,))
            rank = replace(rank, paper=(paper.COMPONENTS[k].rank,))
        rows.append((Cell(str(k)), [test, valid, rank, float32_rank, effective_rank]))
    quantities = [
        Quantity("test"),
        Quantity("valid", in_paper=False),
        Quantity("rank", digits=0),
        Quantity("rank with float32's eps", digits=0, in_paper=False),
        Quantity("effective rank", digits=1, in_paper=False),
    ]
    return ResultTable("K", quantities, rows)


def _order(analysis: RecordedAnalysis) -> tuple[bool, bool, int]:
    """Sort key: exact ranks before lower bounds, test before validation, long training before short."""
    return analysis.is_lower_bound, analysis.record.split != "test", -(analysis.model.epochs or 0)


def _table_by_head(
    analyses: list[RecordedAnalysis],
    in_paper: dict[str, paper.Pair],
    digits: int,
    measure: Callable[[RecordedAnalysis], Result],
) -> ResultTable:
    """Return a row per head with the paper's number and that of our best analysis of the recipe, for each split."""
    rows = []
    for recipe, head in HEADS.items():
        k = RECIPES[recipe].model.n_components
        models = [one for one in analyses if one.model.recipe == recipe and one.model.n_components == k]
        results = []
        for split, number in zip(SPLITS, in_paper[recipe], strict=True):
            best = min((one for one in models if one.record.split == split), key=_order, default=None)
            results.append(replace(measure(best) if best else Result(), paper=(number,)))
        rows.append((Cell(head), results))
    return ResultTable("head", [Quantity(split, digits=digits) for split in SPLITS], rows)


def _rank(analysis: RecordedAnalysis) -> Result:
    return Result(ours=(analysis.model.rank,), origin=analysis.origin(), lower_bound=analysis.is_lower_bound)


def _kld(analysis: RecordedAnalysis) -> Result:
    kld = analysis.model.kld
    assert kld is not None
    return Result(ours=(kld.mean,), origin=analysis.origin(), error=kld.standard_error)
