"""Tables 6 and 11: the rank of each head's log-probability matrix on Penn Treebank, and how far its predictions differ
from context to context (the expected pairwise Kullback-Leibler divergence)."""

from collections.abc import Callable

from highrank.recipes import RECIPES
from highrank.report import paper
from highrank.report.components import of_analysis, quality
from highrank.report.records import Analysis
from highrank.report.results import Cell, Column, Row, Table

HEADS = {"ptb-softmax": "Softmax", "ptb-moc": "MoC", "ptb-mos": "MoS"}


def rank(analyses: list[Analysis]) -> Table:
    about = (
        "Numerical rank of the matrix of log-probabilities of every word at every position, 10,000 columns: singular "
        "values above the round-off that Press et al. expect. The paper prints the embedding size for softmax and MoC; "
        "a bias and the normaliser may add one each."
    )
    cells = _cells(analyses, paper.RANK, "table 6", lambda model: model["rank"])
    return Table("rank", "Rank on Penn Treebank", about, "head", _columns(0), _rows(cells), tables=(6,))


def kld(analyses: list[Analysis]) -> Table:
    about = "Mean Kullback-Leibler divergence between the predictions in two contexts, in nats."
    cells = _cells(analyses, paper.KLD, "table 11", lambda model: (model.get("kld") or {}).get("mean"))
    return Table(
        "kld", "Expected pairwise divergence on Penn Treebank", about, "head", _columns(3), _rows(cells), tables=(11,)
    )


def _columns(digits: int) -> tuple[Column, ...]:
    return tuple(Column(split, digits=digits, less_is_better=False) for split in ("valid", "test"))


def _rows(cells: dict[tuple[str, str], Cell]) -> list[Row]:
    return [Row(text, tuple(cells[name, split] for split in ("valid", "test"))) for name, text in HEADS.items()]


def _cells(
    analyses: list[Analysis], printed: dict[str, paper.Pair], source: str, value: Callable[[dict], float | None]
) -> dict[tuple[str, str], Cell]:
    """By recipe and split: the paper's number, and ours of the best model of that recipe that was analysed."""
    cells = {}
    for name in HEADS:
        usual = RECIPES[name].model.n_components
        for split in ("valid", "test"):
            number = (getattr(printed[name], split),)
            mine = [
                a
                for a in analyses
                if a.split == split and a.model["recipe"] == name and a.model.get("n_components") == usual
            ]
            one = next((a for a in sorted(mine, key=quality) if value(a.model) is not None), None)
            if one is None:
                cells[name, split] = Cell(number, source=source)
            else:
                ours = value(one.model)
                assert ours is not None
                least = one.at_least and source == "table 6"
                error = one.model["kld"]["standard_error"] if source == "table 11" else None
                cells[name, split] = Cell(number, (ours,), of_analysis(one), source, least=least, error=error)
    return cells
