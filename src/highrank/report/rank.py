"""The tables of analysed models: the paper's tables 6 (rank), 7 (number of softmaxes) and 11 (pairwise divergence)."""

from collections.abc import Callable
from dataclasses import replace

from highrank.recipes import RECIPES
from highrank.report import paper
from highrank.report.records import RecordedAnalysis, RecordedRun, short_machine_name
from highrank.report.results import Origin, Quantity, Result, ResultTable, Row
from highrank.report.scores import final_score
from highrank.report.table import Code

K_KEY = "model.n_components"
K_VALUES = (1, 3, 5, 10, 15, 20)
HEADS = {"ptb-softmax": "Softmax", "ptb-moc": "MoC", "ptb-mos": "MoS"}
SPLITS = ("valid", "test")


def rank_table(analyses: list[RecordedAnalysis]) -> ResultTable:
    """Build table 6."""
    about = (
        "Numerical rank of the matrix of log-probabilities, 10,000 columns and one row per token: the number of "
        "singular values above the round-off that Press et al. expect. The paper prints the embedding size for "
        "softmax and MoC; a bias and the normaliser can add one each."
    )
    rows = _rows_by_head(analyses, paper.RANK, "table 6", _rank_result)
    quantities = tuple(Quantity(split, digits=0, less_is_better=False) for split in SPLITS)
    return ResultTable("rank", "Rank on Penn Treebank", about, "head", quantities, rows, paper_tables=(6,))


def kld_table(analyses: list[RecordedAnalysis]) -> ResultTable:
    """Build table 11."""
    about = "Mean Kullback-Leibler divergence between the predictions in two contexts, in nats."
    rows = _rows_by_head([analysis for analysis in analyses if analysis.model.kld], paper.KLD, "table 11", _kld_result)
    quantities = tuple(Quantity(split, digits=3, less_is_better=False) for split in SPLITS)
    title = "Expected pairwise divergence on Penn Treebank"
    return ResultTable("kld", title, about, "head", quantities, rows, paper_tables=(11,))


def components_table(runs: list[RecordedRun], analyses: list[RecordedAnalysis]) -> ResultTable:
    """Build table 7: perplexity and rank over K, the number of softmaxes."""
    study = component_study(runs)
    epochs = next((run.record.epochs for run in study.values()), None)
    by_k = component_analyses(analyses, epochs)
    rows = []
    for k in sorted({*K_VALUES, *study, *by_k}):
        in_paper = paper.COMPONENTS.get(k)
        test, valid, rank, effective_rank = Result(), Result(), Result(), Result()
        if k in study:
            ours = final_score(study[k])
            test = Result(ours=(ours.test,), origin=ours.origin())
            valid = Result(ours=(ours.valid,), origin=ours.origin())
        if k in by_k:
            rank = _rank_result(by_k[k])
            if (effective := by_k[k].model.effective_rank) is not None:
                effective_rank = replace(rank, ours=(effective,), lower_bound=False)
        if in_paper:
            test = replace(test, paper=(in_paper.test,), source="table 7")
            rank = replace(rank, paper=(in_paper.rank,), source="table 7")
        rows.append(Row(str(k), (test, valid, rank, effective_rank)))
    quantities = (
        Quantity("test"),
        Quantity("valid", in_paper=False),
        Quantity("rank", digits=0, less_is_better=False),
        Quantity("effective rank", digits=1, in_paper=False, less_is_better=False),
    )
    training = f"Ours after {epochs} epochs each, the paper's after complete schedules. " if epochs else ""
    about = (
        "Runs of ",
        Code("ptb-mos"),
        f" that differ only in K. {training}The effective rank is the number of equal singular values that would have "
        "the same entropy.",
    )
    return ResultTable("components", "The number of softmaxes", about, "K", quantities, rows, paper_tables=(7,))


def component_study(runs: list[RecordedRun]) -> dict[int, RecordedRun]:
    """Return the largest set of ptb-mos runs that differ only in K, by K; of equal sets, the one trained longest."""
    sets: dict[int, dict[int, RecordedRun]] = {}  # epochs -> K -> run
    for run in runs:
        if run.recipe == "ptb-mos" and not run.is_finetuned and set(run.changes) <= {K_KEY}:
            by_k = sets.setdefault(run.record.epochs, {})
            k = run.changes.get(K_KEY, RECIPES["ptb-mos"].model.n_components)
            if k not in by_k or run.record.valid_ppl < by_k[k].record.valid_ppl:
                by_k[k] = run
    _, largest = max(sets.items(), key=lambda item: (len(item[1]), item[0]), default=(0, {}))
    return largest if len(largest) > 1 else {}


def component_analyses(analyses: list[RecordedAnalysis], epochs: int | None) -> dict[int, RecordedAnalysis]:
    """Return the best analysis of ptb-mos for each K; those of models trained for `epochs` come first."""
    by_k: dict[int, RecordedAnalysis] = {}
    for analysis in sorted(analyses, key=lambda one: (one.model.epochs != epochs, _analysis_order(one))):
        if analysis.model.recipe == "ptb-mos":
            by_k.setdefault(analysis.model.n_components, analysis)
    return by_k


def _analysis_order(analysis: RecordedAnalysis) -> tuple[bool, bool, int]:
    """Sort key: exact ranks before lower bounds, test before validation, long training before short."""
    return analysis.is_lower_bound, analysis.record.split != "test", -(analysis.model.epochs or 0)


def _rows_by_head(
    analyses: list[RecordedAnalysis],
    in_paper: dict[str, paper.Pair],
    source: str,
    result: Callable[[RecordedAnalysis], Result],
) -> list[Row]:
    """Return a row per head with the paper's number and the result of our best analysed model, for each split."""
    rows = []
    for recipe, head in HEADS.items():
        k = RECIPES[recipe].model.n_components
        candidates = [one for one in analyses if one.model.recipe == recipe and one.model.n_components == k]
        results = []
        for split in SPLITS:
            of_split = [analysis for analysis in candidates if analysis.record.split == split]
            ours = result(min(of_split, key=_analysis_order)) if of_split else Result()
            results.append(replace(ours, paper=(getattr(in_paper[recipe], split),), source=source))
        rows.append(Row(head, tuple(results)))
    return rows


def _rank_result(analysis: RecordedAnalysis) -> Result:
    bound = analysis.is_lower_bound
    return Result(ours=(analysis.model.rank,), origin=_origin(analysis), lower_bound=bound)


def _kld_result(analysis: RecordedAnalysis) -> Result:
    kld = analysis.model.kld
    assert kld is not None
    return Result(ours=(kld.mean,), origin=_origin(analysis), error=kld.standard_error)


def _origin(analysis: RecordedAnalysis) -> Origin:
    model = analysis.model
    provenance = analysis.record.provenance
    about = [f"{analysis.record.tokens:,} tokens of {analysis.record.split}"]
    if model.projected:
        about.append(f"through {model.projected:,} random columns: a lower bound")
    if model.kld:
        about.append(f"divergence ± {model.kld.standard_error:.3f}")
    return Origin(
        record=analysis.path,
        commit=provenance["commit"],
        machine=short_machine_name(provenance["machine"]),
        epochs=model.epochs,
        about=", ".join(about),
    )
