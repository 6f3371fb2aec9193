"""Table 7: perplexity and rank over K, the number of softmaxes, on Penn Treebank.

Ours are runs of ptb-mos that differ in K alone, after the same number of epochs: of all such sets of records, the one
with the most values of K. The paper's went through whole schedules without finetuning.
"""

from highrank.report import paper
from highrank.report.choice import origin
from highrank.report.records import Analysis, Record, machine_name
from highrank.report.results import Cell, Column, Origin, Row, Table

KEY = "model.n_components"
ASKED = (1, 3, 5, 10, 15, 20)


def study(records: list[Record]) -> dict[int, Record]:
    """K -> record, of the largest set that is alike in everything but K."""
    sets: dict[tuple[int, str], dict[int, Record]] = {}
    for record in records:
        data = record.data
        others = {key: value for key, value in record.overrides.items() if key != KEY}
        if record.recipe != "ptb-mos" or "settings" not in data or any(not k.startswith("train.") for k in others):
            continue
        if not record.finetuned:
            alike = sets.setdefault((data["epochs"], str(sorted(others.items()))), {})
            k = data["settings"]["model"]["n_components"]
            if k not in alike or data["valid_ppl"] < alike[k].data["valid_ppl"]:
                alike[k] = record
    _, found = max(sets.items(), key=lambda item: (len(item[1]), item[0]), default=(None, {}))
    return found if len(found) > 1 else {}  # one alone compares nothing


def components(records: list[Record], analyses: list[Analysis]) -> Table:
    found = study(records)
    epochs = next((record.data["epochs"] for record in found.values()), None)
    ranks = of_components(analyses, epochs)
    rows = []
    for k in sorted({*ASKED, *found, *ranks}):
        printed = paper.COMPONENTS.get(k)
        source = "table 7" if printed else ""
        record, rank = found.get(k), ranks.get(k)
        where = origin(record, record.data) if record else None
        test = (record.data["test_ppl"],) if record else None
        valid = (record.data["valid_ppl"],) if record else None
        ranked = Cell((printed.rank,), source=source) if printed else Cell()
        if rank:
            ranked = Cell(ranked.paper, (rank.model["rank"],), of_analysis(rank), source, least=rank.at_least)
        effective = Cell(None, (rank.model["effective_rank"],), of_analysis(rank)) if rank else Cell()
        tested = Cell((printed.test,) if printed else None, test, where, source)
        rows.append(Row(str(k), (tested, Cell(None, valid, where), ranked, effective)))
    columns = (
        Column("test"),
        Column("valid", paper=False),
        Column("rank", digits=0, less_is_better=False),
        Column("effective rank", digits=1, paper=False, less_is_better=False),
    )
    about = "Runs of `ptb-mos` that differ in K alone. "
    about += f"Ours after {epochs} epochs each, the paper's after whole schedules. " if epochs else ""
    about += "Effective rank: how many singular values of one size would have the same entropy."
    return Table("components", "The number of softmaxes", about, "K", columns, rows, tables=(7,))


def of_components(analyses: list[Analysis], epochs: int | None) -> dict[int, Analysis]:
    """K -> analysis of ptb-mos: the best there is, but one of a model of so many epochs before all others."""
    found: dict[int, Analysis] = {}
    for one in sorted(analyses, key=lambda a: (a.model.get("epochs") != epochs, quality(a))):
        if one.model["recipe"] == "ptb-mos" and one.model.get("n_components"):
            found.setdefault(one.model["n_components"], one)
    return found


def quality(one: Analysis) -> tuple[bool, bool, int]:
    """Sorts the better analysis first: not a bound alone, of the test set, of the model that was trained longest."""
    return one.at_least, one.split != "test", -(one.model.get("epochs") or 0)


def of_analysis(one: Analysis) -> Origin:
    about = [f"{one.model['tokens']:,} tokens of {one.split}"]
    if one.model.get("projected"):
        about.append(f"through {one.model['projected']:,} random columns: a lower bound")
    if one.model.get("kld"):
        about.append(f"divergence ± {one.model['kld']['standard_error']:.3f}")
    return Origin(
        path=one.path,
        commit=one.provenance.get("commit"),
        machine=machine_name(one.provenance.get("machine")),
        epochs=one.model.get("epochs"),
        about=", ".join(about),
    )
