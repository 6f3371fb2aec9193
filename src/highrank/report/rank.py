"""The tables of analysed models: the paper's tables 6 (rank), 7 (number of softmaxes) and 11 (pairwise divergence)."""

from collections.abc import Callable
from dataclasses import replace

from highrank.recipes import RECIPES
from highrank.report import paper
from highrank.report.perplexity import final_perplexity
from highrank.report.records import RecordedAnalysis, RecordedRun
from highrank.report.results import Quantity, Result, ResultTable
from highrank.report.table import Cell

K_KEY = "model.n_components"
K_VALUES = (1, 3, 5, 10, 15, 20)
HEADS = {"ptb-softmax": "Softmax", "ptb-moc": "MoC", "ptb-mos": "MoS"}
SPLITS = ("valid", "test")


def rank_table(analyses: list[RecordedAnalysis]) -> ResultTable:
    """Build table 6."""
    return _table_by_head(analyses, paper.RANK, 0, _rank)


def kld_table(analyses: list[RecordedAnalysis]) -> ResultTable:
    """Build table 11."""
    return _table_by_head([analysis for analysis in analyses if analysis.model.kld], paper.KLD, 3, _kld)


def components_table(runs: list[RecordedRun], analyses: list[RecordedAnalysis]) -> ResultTable:
    """Build table 7: perplexity and rank over K, the number of softmaxes."""
    study = component_study(runs)
    epochs = next((run.record.epochs for run in study.values()), None)
    by_k: dict[int, RecordedAnalysis] = {}
    for analysis in sorted(analyses, key=lambda one: (one.model.epochs != epochs, _order(one))):
        if analysis.model.recipe == "ptb-mos":
            by_k.setdefault(analysis.model.n_components, analysis)
    rows = []
    for k in sorted({*K_VALUES, *study, *by_k}):
        test, valid, rank, effective_rank = Result(), Result(), Result(), Result()
        if k in study:
            both = final_perplexity(study[k])
            assert both.ours is not None
            valid, test = (replace(both, ours=(number,)) for number in both.ours)
        if k in by_k:
            rank = _rank(by_k[k])
            if (effective := by_k[k].model.effective_rank) is not None:
                effective_rank = Result(ours=(effective,), origin=rank.origin)
        if k in paper.COMPONENTS:
            test = replace(test, paper=(paper.COMPONENTS[k].test,))
            rank = replace(rank, paper=(paper.COMPONENTS[k].rank,))
        rows.append((Cell(str(k)), [test, valid, rank, effective_rank]))
    quantities = [
        Quantity("test"),
        Quantity("valid", in_paper=False),
        Quantity("rank", digits=0),
        Quantity("effective rank", digits=1, in_paper=False),
    ]
    return ResultTable("K", quantities, rows)


def component_study(runs: list[RecordedRun]) -> dict[int, RecordedRun]:
    """Return the largest set of ptb-mos runs that differ only in K, by K; of equal sets, the one trained longest."""
    sets: dict[int, dict[int, RecordedRun]] = {}  # epochs -> K -> run
    for run in runs:
        if run.record.recipe == "ptb-mos" and not run.is_finetuned and set(run.changes) <= {K_KEY}:
            by_k = sets.setdefault(run.record.epochs, {})
            k = run.changes.get(K_KEY, RECIPES["ptb-mos"].model.n_components)
            if k not in by_k or run.record.valid_ppl < by_k[k].record.valid_ppl:
                by_k[k] = run
    _, largest = max(sets.items(), key=lambda item: (len(item[1]), item[0]), default=(0, {}))
    return largest if len(largest) > 1 else {}


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
