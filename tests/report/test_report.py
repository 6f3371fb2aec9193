"""The report reads records, shows what is missing, tells studies from main runs, and keeps the README's tables true."""

import copy
import json
import math
import re
from pathlib import Path

import pytest

from highrank.bench.step import BENCH_ONLY, CASES
from highrank.errors import UserError
from highrank.plotting import HEADS
from highrank.recipes import get_recipe, override
from highrank.report import build, fill, paper, sections
from highrank.report.choice import of_state, trained_for
from highrank.report.components import study
from highrank.report.figures.curves import close, figures
from highrank.report.records import Analysis, Record, load_analyses, load_records
from highrank.report.results import NOT_RUN, Cell, Column, Origin, Row, Table, as_good, flat
from highrank.report.write import _cards, _run, write

ROOT = Path(__file__).parents[2]


def make(recipe="ptb-mos", settings=(), valid=70.123, **changes):
    """A record as `highrank record` writes it, of a run of about ten minutes."""
    resolved = json.loads(json.dumps(override(get_recipe(recipe), list(settings)).resolved()))
    record = {
        "recipe": recipe, "outcome": "time-budget", "epochs": 3, "seconds": 590.0, "stage": 0, "seed": 28,
        "valid_ppl": valid, "test_ppl": valid - 2, "settings": resolved, "averaged_from": 2,
        "provenance": {"commit": "abc", "machine": "NVIDIA H200", "torch": "2"},
        "pieces": [piece()],
        "curve": {"epoch": [1, 2, 3], "seconds": [200.0, 400.0, 590.0], "train_ppl": [90.0, 80.0, 70.0],
                  "valid_ppl": ["inf", valid + 3, valid]},
    }  # fmt: skip
    stage = {"stage": 0, "epochs": 3, "best_epoch": 3, "seconds": 590.0, "valid_ppl": valid, "test_ppl": valid - 2}
    return {**record, "stages": [stage], **copy.deepcopy(changes)}


def piece(epoch=0, commit="abc"):
    return {"epoch": epoch, "seconds": 100.0 * epoch, "outcome": "time-budget", "commit": commit}


def put(results, **records):
    for name, record in records.items():
        path = results / "runs" / f"{name.replace('_', '-')}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record))
    return results


def table_of(results, name):
    (found,) = [t for t in build(results).tables if t.name == name]
    return found


def numbers(results, table):
    """(row, column, part) -> entry of `highrank report --json`."""
    return {(e["row"], e["column"], e["part"]): e for e in flat(table_of(results, table))}


@pytest.mark.parametrize("page", ["README.md", "docs/results.md"])
def test_the_pages_are_up_to_date(page):
    """If this fails: highrank report --readme README.md; highrank report --readme docs/results.md"""
    text = (ROOT / page).read_text()
    link = "results" if page == "README.md" else "../results"
    assert fill(text, sections(build(ROOT / "results"), link)) == text


def test_every_committed_record_says_where_it_comes_from():
    records = load_records(ROOT / "results")
    assert records
    for record in records:
        assert record.commit(), record.file
        assert record.data["provenance"]["torch"], record.file
        assert record.data["curve"]["valid_ppl"], record.file


def test_the_commit_is_that_of_the_last_piece():
    first = {"commit": "a"}
    pieces = [piece(commit="a"), piece(2, "b")]
    assert Record("", {"provenance": first}).commit() == "a"
    assert Record("", {"provenance": first, "pieces": pieces}).commit() == "b"
    assert Record("", {"provenance": first, "pieces": pieces}).commit(2) == "a"  # of what there was after two epochs
    assert Record("", {"provenance": first, "pieces": [piece(commit=None)]}).commit() == "a"
    assert Record("", {"provenance": {"commit": None}}).commit() is None


def test_nothing_run_says_so_everywhere(tmp_path):
    report = build(tmp_path)
    entries = [entry for table in report.tables for entry in flat(table)]
    assert entries
    assert all(entry["ours"] is None and entry["record"] is None for entry in entries)
    assert all(entry["source"] for entry in entries if entry["paper"] is not None)
    assert (
        "| `ptb-mos` | not run | not run | not run | 58.08 / 55.97 | 56.54 / 54.44 | |" in sections(report)["results"]
    )
    states = [row.label.split(", ")[1] for row in table_of(tmp_path, "ptb").rows]
    assert list(dict.fromkeys(states)) == ["without finetuning", "finetuned", "+ cache", "+ dynamic evaluation"]
    for number in (3, 4, 12, 14):
        assert any(text.startswith(f"table {number}:") for text in report.untouched())


def test_numbers_in_a_page_are_not_folded(tmp_path):
    """GitHub's columns are narrow: without this, 58.08 / 55.97 takes two lines."""
    rows = ["| `a` | [**58.08 / 55.97**](x) | 4.35 ± 0.04 | 12 x 70 | ≥ 8,000 | not run |",
            "| b | 2.5x / 3x | 2.50 / 1.25 ms, 30 MiB | 125 epochs, 9.1 min of one H200; in 2 pieces |"]  # fmt: skip
    parts = {"a": "\n".join(["Valid / test, 3 / 4:", "", *rows])}
    begin, end = "<!-- a: made by 'highrank report' -->", "<!-- end of a -->"
    filled = fill(f"{begin}{end}", parts)
    assert filled.replace("\u00a0", " ") == f"{begin}\n{parts['a']}\n{end}"
    assert filled.replace("\u00a0", "_").splitlines()[3:5] == [
        "| `a` | [**58.08_/_55.97**](x) | 4.35_±_0.04 | 12_x_70 | ≥_8,000 | not_run |",
        "| b | 2.5x_/_3x | 2.50_/_1.25_ms, 30_MiB | 125_epochs, 9.1_min of one H200; in 2_pieces |",
    ]
    assert "Valid / test, 3 / 4:" in filled  # text is folded where it likes
    write(build(put(tmp_path, a=make(valid=60.0))), tmp_path / "page")
    assert "**60.00\u00a0/\u00a058.00**" in (tmp_path / "page" / "report.md").read_text()


def test_each_stage_is_a_row_beside_the_paper(tmp_path):
    stages = [{"stage": 0, "epochs": 600, "seconds": 2500.0, "valid_ppl": 58.3, "test_ppl": 56.2},
              {"stage": 1, "epochs": 800, "seconds": 3400.0, "valid_ppl": 56.7, "test_ppl": 54.6}]  # fmt: skip
    dynamic = {"settings": {}, "valid_ppl": 48.9, "test_ppl": 48.2, "seconds": 70.0}
    elsewhere = {"commit": "xyz", "machine": "NVIDIA A100"}
    tuned = {**dynamic, "valid_ppl": 48.5, "test_ppl": 48.4, "tuning": {}, "provenance": elsewhere}
    whole = make(stage=1, stages=stages, epochs=800, seconds=3400.0, valid_ppl=56.7, test_ppl=54.6, outcome="finished",
                 dynamic=dynamic, dynamic_tuned=tuned, pieces=[piece(), piece(400, "def")])  # fmt: skip
    put(tmp_path, whole=whole, short=make())
    cells = numbers(tmp_path, "ptb")
    first = cells["ptb-mos, without finetuning", "valid / test", "test"]
    assert (first["paper"], first["source"], first["ours"]) == (55.97, "table 1", 56.2)
    assert (first["epochs"], first["seconds"], first["seed"], first["commit"]) == (600, 2500.0, 28, "def")
    second = cells["ptb-mos, finetuned", "valid / test", "test"]
    assert (second["paper"], second["ours"], second["epochs"], second["seconds"]) == (54.44, 54.6, 800, 3400.0)
    third = cells["ptb-mos, + dynamic evaluation", "valid / test", "test"]  # chosen on valid, not on test
    assert (third["paper"], third["ours"], third["seconds"]) == (47.69, 48.4, 3400.0)
    assert third["about"] == "in 2 pieces, settings tuned on valid"
    assert third["adapted"] == {"commit": "xyz", "machine": "A100", "seconds": 70.0, "settings": {}}
    assert first["adapted"] is second["adapted"] is None
    assert cells["ptb-softmax, finetuned", "valid / test", "test"]["ours"] is None
    assert "60.7 / 58.8 | not run" in sections(build(tmp_path))["ptb"]  # as its authors print it
    ablation = numbers(tmp_path, "ablation")  # without finetuning
    assert ablation["AWD-LSTM-MoS", "PTB valid / test", "test"]["ours"] == 56.2
    assert ablation["AWD-LSTM-MoS", "WT2 valid / test", "test"]["ours"] is None
    assert (
        "| `ptb-mos` | 56.7 min of one H200, 800 epochs, finetuned | **56.70 / 54.60** | 48.50 / 48.40 "
        "| 58.08 / 55.97 | 56.54 / 54.44 | [record](results/runs/whole.json) |" in sections(build(tmp_path))["results"]
    )


def test_pieces_and_commit_are_those_of_the_stage(tmp_path):
    stages = [{"stage": 0, "epochs": 600, "seconds": 2500.0, "valid_ppl": 58.3, "test_ppl": 56.2},
              {"stage": 1, "epochs": 800, "seconds": 3400.0, "valid_ppl": 56.7, "test_ppl": 54.6}]  # fmt: skip
    pieces = [{**piece(), "machine": "NVIDIA H200"}, {**piece(400, "def"), "machine": "NVIDIA H200"},
              {**piece(600, "ghi"), "machine": "NVIDIA A100"}]  # fmt: skip
    put(tmp_path, a=make(stage=1, stages=stages, epochs=800, seconds=3400.0, valid_ppl=56.7, pieces=pieces))
    cells = numbers(tmp_path, "ptb")
    first, second = (cells[f"ptb-mos, {how}", "valid / test", "test"] for how in ("without finetuning", "finetuned"))
    assert (first["about"], first["commit"], first["machine"]) == ("in 2 pieces", "def", "H200")
    assert (second["about"], second["commit"], second["machine"]) == ("in 3 pieces", "ghi", "H200 and A100")


@pytest.mark.parametrize("left", [{"valid_ppl": 48.5}, {"valid_ppl": 48.5, "test_ppl": None}, {}])
def test_a_part_that_was_cut_off_is_not_shown_yet(tmp_path, left):
    dynamic = {"settings": {}, "valid_ppl": 48.9, "test_ppl": 48.2}
    put(tmp_path, a=make(dynamic=dynamic, dynamic_tuned=left), b=make("ptb-softmax", dynamic=left))
    cells = numbers(tmp_path, "ptb")
    assert cells["ptb-mos, + dynamic evaluation", "valid / test", "test"]["ours"] == 48.2
    assert cells["ptb-softmax, + dynamic evaluation", "valid / test", "test"]["ours"] is None
    write(build(tmp_path), tmp_path / "page")


def test_a_run_that_was_not_finetuned_has_no_such_row(tmp_path):
    old = {key: value for key, value in make(stage=1).items() if key != "stages"}  # as records once were
    assert numbers(put(tmp_path, a=make()), "ptb")["ptb-mos, finetuned", "valid / test", "test"]["ours"] is None
    assert of_state("trained")(Record("old", old)) is None
    assert of_state("finetuned")(Record("old", old)) == old
    assert Record("old", old).finetuned


def test_a_stage_that_was_only_begun_is_no_finetuning(tmp_path):
    """As where it begins on request, or when the time is up: the weights are those of the stage before."""
    begun = make(stage=1)
    begun["stages"].append({**begun["stages"][0], "stage": 1})
    put(tmp_path, a=begun)
    cells = numbers(tmp_path, "ptb")
    assert cells["ptb-mos, finetuned", "valid / test", "test"]["ours"] is None
    assert cells["ptb-mos, without finetuning", "valid / test", "test"]["ours"] == begun["test_ppl"]
    (record,) = load_records(tmp_path)
    assert "finetuned" not in _run(record)["what"]
    begun["epochs"] = begun["stages"][1]["epochs"] = 4
    put(tmp_path, a=begun)
    assert numbers(tmp_path, "ptb")["ptb-mos, finetuned", "valid / test", "test"]["ours"] == begun["test_ppl"]
    begun["stages"].append({**begun["stages"][1], "stage": 2})  # a second finetuning takes nothing from the first
    assert Record("a", begun | {"stage": 2}).finetuned


def test_validation_alone_chooses(tmp_path):
    """Of runs and of what a report puts first; neither test perplexity nor another model counts."""
    first = {"stage": 0, "epochs": 3, "seconds": 590.0, "valid_ppl": 66.0, "test_ppl": 59.0}
    put(tmp_path,
        good=make(valid=64.0, test_ppl=63.0, stages=[]),
        lucky=make(valid=65.0, test_ppl=60.0, stages=[]),
        tuned=make(valid=62.0, test_ppl=61.0, stages=[first], stage=1, seconds=1200.0),
        other=make(valid=40.0, settings=["model.n_components=5"]),
        study=make(valid=65.5, test_ppl=60.5, stages=[], outcome="max-epochs"),
        wt2=make("wt2-mos", valid=70.0, dynamic={"settings": {}, "valid_ppl": 50.0, "test_ppl": 49.0}))  # fmt: skip
    entry = numbers(tmp_path, "ptb")["ptb-mos, without finetuning", "valid / test", "test"]
    assert (entry["ours"], entry["record"]) == (63.0, "runs/good.json")
    assert _cards(load_records(tmp_path)) == [
        ("61.00", "Penn Treebank, test perplexity", "`ptb-mos`, 20 min of one H200; the paper: 54.44"),
        ("68.00", "WikiText-2, test perplexity", "`wt2-mos`, 10 min of one H200; the paper: 63.33"),
        ("49.00", "WikiText-2, test perplexity, dynamic evaluation",
         "`wt2-mos`, 10 min of one H200; the paper: 40.68"),
    ]  # fmt: skip
    counted = make(valid=61.5, test_ppl=62.0, stages=[], outcome="max-epochs")  # whoever counts epochs has a run too
    put(tmp_path, counted=counted)
    entry = numbers(tmp_path, "ptb")["ptb-mos, without finetuning", "valid / test", "test"]
    assert (entry["ours"], entry["record"]) == (62.0, "runs/counted.json")
    for name in ("tuned", "counted"):
        (tmp_path / "runs" / f"{name}.json").unlink()
    what, how = "Penn Treebank, test perplexity", "`ptb-mos`, 10 min of one H200; the paper: 55.97"
    assert _cards(load_records(tmp_path))[0] == ("63.00", what, how)


def test_records_come_by_recipe_then_epochs_then_name_as_one_counts(tmp_path):
    put(tmp_path, k15=make(), k3=make(), long=make(epochs=100), a=make(epochs=20), wt=make("wt2-mos"))
    (tmp_path / "runs" / "own.json").write_text(json.dumps(make() | {"recipe": "somebody's"}))
    names = [record.file.removesuffix(".json") for record in load_records(tmp_path)]
    assert names == ["k3", "k15", "a", "long", "wt", "own"]


def test_what_is_not_run_names_its_row():
    cells = (Cell(ours=(1.0,)), Cell())
    rows = [Row("3", cells), Row("moc", cells)]
    table = Table("t", "T", "", "K", (Column("a"), Column("b")), rows)
    assert table.missing() == ["K = 3: b", "moc: b"]


def test_time_is_told_in_minutes_or_hours():
    assert trained_for(Origin("", None, "H200", epochs=125, seconds=546.0)) == "125 epochs, 9.1 min of one H200"
    assert trained_for(Origin("", None, "H200", epochs=9, seconds=6000.0)) == "9 epochs, 100.0 min of one H200"
    assert (
        trained_for(Origin("", None, "H200", epochs=9, seconds=9000.0, about="x")) == "9 epochs, 2.5 h of one H200; x"
    )
    assert trained_for(Origin("", None, "H200")) == trained_for(None) == ""


def test_green_is_as_good_as_the_paper_in_both_numbers():
    both = Column("valid / test", ("valid", "test"))
    for ours, good in (((58.0, 56.0), True), ((57.0, 55.0), True), ((57.0, 56.1), False), ((58.1, 55.0), False)):
        assert as_good(Cell((58.0, 56.0), ours), both) is good
    assert not as_good(Cell((58.0, 56.0)), both)
    assert not as_good(Cell(None, (1.0, 1.0)), both)
    assert not as_good(Cell((400.0,), (402.0,)), Column("rank", less_is_better=False))
    assert not as_good(Cell((400.0,), (398.0,)), Column("rank", less_is_better=False))


def test_the_papers_numbers_agree_with_each_other():
    """What stands in two places is the same in both; and adapting always helps, on test more than on valid."""
    printed = {(case.column, step_k(case)): case.paper for case in CASES.values() if case.paper and case.paper != 1}
    assert printed == {(column, k): x for k, row in paper.SLOWDOWN.items() for column, x in row.items()}
    assert paper.RANK["ptb-mos"].test == paper.COMPONENTS[15].rank
    assert get_recipe("ptb-mos").paper[0].test == paper.COMPONENTS[15].test
    assert paper.RANK["ptb-softmax"].test == get_recipe("ptb-softmax").model.embed_dim
    assert paper.RANK["ptb-moc"].test == get_recipe("ptb-moc").model.embed_dim
    for recipe in ("ptb-softmax", "wt2-softmax"):
        states = [paper.SINGLE_MODELS[recipe, state] for state in ("trained", "finetuned", "cache", "dynamic")]
        assert states == sorted(states, reverse=True)
    assert all(pair.test < pair.valid for pair in (*paper.SINGLE_MODELS.values(), *paper.KLD.values()))


def step_k(case):
    return override(BENCH_ONLY.get(case.recipe) or get_recipe(case.recipe), list(case.settings)).model.n_components


def test_the_recipe_is_not_its_variants(tmp_path):
    """A run with another model or another text never stands for the recipe; one with other training says so."""
    put(tmp_path,
        few=make(settings=["model.n_components=5"], valid=50.0),
        text=make(settings=["data.corpus=elsewhere"], valid=40.0),
        rate=make(settings=["train.lr=15"], valid=65.0),
        plain=make(settings=["train.seed=5"], valid=66.0))  # fmt: skip
    entry = numbers(tmp_path, "ptb")["ptb-mos, without finetuning", "valid / test", "valid"]
    assert entry["ours"] == 65.0
    assert entry["about"] == "with train.lr=15.0"
    assert "train.lr=15" in sections(build(tmp_path))["results"]
    assert [r.overrides for r in load_records(tmp_path) if r.file == "plain.json"] == [{}]  # a seed is no difference
    assert {"few", "text", "rate", "plain"} == {r.file.removesuffix(".json") for r in load_records(tmp_path)}


def test_ten_minutes_are_one_start_from_scratch_stopped_by_the_clock(tmp_path):
    put(tmp_path,
        good=make(valid=60.0, dynamic={"settings": {}, "valid_ppl": 52.0, "test_ppl": 51.0}),
        long=make(valid=50.0, seconds=900.0),
        brief=make(valid=51.0, seconds=100.0),
        counted=make(valid=49.0, outcome="max-epochs"),
        resumed=make(valid=48.0, pieces=[piece(), piece(2)]),
        imported=make(valid=47.0, pieces=[piece(2)]),
        cpu=make(valid=46.0, provenance={"commit": "abc", "machine": "A CPU, 2 threads"}),
        other=make(valid=45.0, settings=["model.n_components=5"]),
        longer=make("ptb-mos-plus", seconds=900.0), own=make("wt2-mos-plus"))  # fmt: skip
    cells = numbers(tmp_path, "ten-minutes")
    entry = cells["ptb-mos", "valid / test", "valid"]
    assert (entry["ours"], entry["paper"], entry["source"]) == (60.0, 58.08, "table 1")
    assert cells["ptb-mos", "+ dynamic evaluation", "test"]["ours"] == 51.0
    assert cells["wt2-moc", "valid / test", "test"]["ours"] is None
    labels = [row.label for row in table_of(tmp_path, "ten-minutes").rows]
    assert labels.count("`ptb-mos`") == 1
    assert ("`ptb-mos-plus`" in labels, "`wt2-mos-plus`" in labels) == (False, True)  # ours alone: where they were run


def test_the_table_over_k_compares_equal_epochs(tmp_path):
    same = {k: make(settings=[f"model.n_components={k}"], valid=60 + 9 / k, epochs=60) for k in (1, 5, 15)}
    put(tmp_path, **{f"k{k}": record for k, record in same.items()},
        longer=make(settings=["model.n_components=5"], valid=50.0, epochs=90),
        again=make(settings=["model.n_components=5"], valid=70.0, test_ppl=50.0, epochs=60, seconds=100.0),
        slower=make(settings=["model.n_components=5"], valid=71.0, epochs=60, seconds=900.0),
        text=make("wt2-mos", settings=["model.n_components=20"], valid=50.0, epochs=60),
        tuned=make(settings=["model.n_components=3", "train.lr=15"], valid=50.0, epochs=60),
        finetuned=make(settings=["model.n_components=10"], valid=50.0, epochs=60, stage=1))  # fmt: skip
    assert sorted(study(load_records(tmp_path))) == [1, 5, 15]
    cells = numbers(tmp_path, "components")
    assert cells["5", "test", None]["ours"] == pytest.approx(59.8)
    assert (cells["5", "test", None]["paper"], cells["5", "test", None]["source"]) == (57.36, "table 7")
    assert cells["5", "valid", None]["ours"] == pytest.approx(61.8)
    assert cells["3", "test", None]["ours"] is None
    assert "Ours after 60 epochs each" in table_of(tmp_path, "components").about
    assert study(load_records(put(tmp_path / "one", alone=make()))) == {}
    put(tmp_path / "two", **{f"k{k}-{n}": make(settings=[f"model.n_components={k}"], epochs=n) for k in (1, 5)
                             for n in (20, 60, 40)})  # fmt: skip
    assert [r.data["epochs"] for r in study(load_records(tmp_path / "two")).values()] == [60, 60]  # the longest


def analysis(split, rank, recipe="ptb-mos", k=15, **changes):
    model = {"name": "x", "run": "x", "recipe": recipe, "head": "mos", "n_components": k, "embed_dim": 280,
             "epochs": 3, "valid_ppl": 60.0, "test_ppl": 58.0, "effective_rank": 50.0, "rank": rank, "projected": None,
             "spectrum": {"values": [2.0, 1.0, 0.1], "index": [1, 2, 9]},
             "kld": {"mean": 5.2, "standard_error": 0.01, "contexts": 100}, **changes}  # fmt: skip
    return {"kind": "analysis", "split": split, "tokens": 20_000, "vocabulary": 10_000, "models": [model],
            "provenance": {"commit": "abc", "machine": "NVIDIA H200"}}  # fmt: skip


def test_analyses_fill_their_tables(tmp_path):
    (tmp_path / "analysis" / "deeper").mkdir(parents=True)
    found = {
        "a": analysis("test", 9970),
        "0": analysis("test", 9000, epochs=2),  # of a model that was trained for less
        "deeper/c": analysis("valid", 9971),
        "d": analysis("test", 8000, k=5, projected=8000),
        "e": analysis("test", 402, "ptb-softmax", 1, kld=None),
    }
    for name, data in found.items():
        (tmp_path / "analysis" / f"{name}.json").write_text(json.dumps(data))
    part = analysis("test", 999, valid_ppl=50.0) | {"tokens": 999}  # of the best model, but the rows bound its rank
    elsewhere = analysis(None, 100, recipe=None)  # a model without a recipe, on a text without splits
    for name, data in {"g": part, "h": elsewhere}.items():
        (tmp_path / "analysis" / f"{name}.json").write_text(json.dumps(data))
    (tmp_path / "analysis" / "note.json").write_text('{"kind": "something else"}')
    assert len(load_analyses(tmp_path)) == 6
    rank = numbers(tmp_path, "rank")
    assert (rank["MoS", "test", None]["ours"], rank["MoS", "test", None]["paper"]) == (9970, 9981)
    assert rank["MoS", "valid", None]["record"] == "analysis/deeper/c.json"
    assert rank["Softmax", "test", None]["ours"] == 402
    assert rank["MoC", "test", None]["ours"] is None
    over_k = numbers(tmp_path, "components")
    assert over_k["5", "rank", None]["ours"] == 8000
    assert over_k["5", "rank", None]["about"] == (
        "20,000 tokens of test, through 8,000 random columns: a lower bound, divergence ± 0.010"
    )
    assert over_k["5", "effective rank", None]["ours"] == 50.0
    assert over_k["15", "rank", None]["record"] == "analysis/a.json"  # of the test set
    (tmp_path / "analysis" / "again.json").write_text(json.dumps(found["a"]))  # as good: every table takes the first
    assert numbers(tmp_path, "components")["15", "rank", None]["record"] == "analysis/a.json"
    assert numbers(tmp_path, "rank")["MoS", "test", None]["record"] == "analysis/a.json"
    (tmp_path / "analysis" / "again.json").unlink()
    assert "≥ 8,000" in sections(build(tmp_path))["components"]  # projected: a lower bound
    (tmp_path / "analysis" / "a.json").unlink()
    (tmp_path / "analysis" / "0.json").unlink()
    assert "≥ 999" in sections(build(tmp_path))["rank"]
    assert "5.200 ± 0.010" in sections(build(tmp_path))["kld"]
    assert "≥" not in sections(build(tmp_path))["kld"]  # fewer contexts bound no mean
    (tmp_path / "analysis" / "a.json").write_text(json.dumps(found["a"]))
    kld = numbers(tmp_path, "kld")
    assert (kld["MoS", "test", None]["ours"], kld["MoS", "test", None]["source"]) == (5.2, "table 11")
    assert kld["MoS", "test", None]["error"] == 0.01
    assert [kld["MoS", split, None]["paper"] for split in ("valid", "test")] == [*paper.KLD["ptb-mos"]]
    assert kld["Softmax", "test", None]["ours"] is None
    (tmp_path / "analysis" / "f.json").write_text('{"kind": "analysis", "models": []}')
    with pytest.raises(UserError, match=r"f\.json is not an analysis"):
        build(tmp_path)


def write_analyses(results, **analyses):
    (results / "analysis").mkdir()
    for name, data in analyses.items():
        (results / "analysis" / f"{name}.json").write_text(json.dumps(data))


def test_the_rank_over_k_is_of_the_models_that_are_compared(tmp_path):
    """Even where a model that was trained for longer was analysed too."""
    put(tmp_path, **{f"k{k}": make(settings=[f"model.n_components={k}"], epochs=60) for k in (5, 15)})
    write_analyses(tmp_path, a=analysis("test", 60, epochs=60), b=analysis("test", 90, epochs=90),
                   c=analysis("test", 70, "wt2-mos", epochs=60))  # fmt: skip
    assert numbers(tmp_path, "components")["15", "rank", None]["ours"] == 60


def test_the_best_model_with_the_recipes_own_k_stands_for_a_head(tmp_path):
    """In the tables of rank and divergence, and in the figure of singular values."""
    write_analyses(tmp_path, a=analysis("test", 8000, epochs=9), b=analysis("test", 7000, epochs=3),
                   c=analysis("test", 9000, epochs=99, k=5),
                   d=analysis("test", 400, "ptb-softmax", 1, projected=500))  # fmt: skip
    for table in ("rank", "kld"):
        assert numbers(tmp_path, table)["MoS", "test", None]["record"] == "analysis/a.json"
    _, figure = figures([], load_analyses(tmp_path))["spectrum"]
    (axis,) = figure.axes
    told = {line.get_label(): line.get_color() for line in axis.lines}
    assert told == {"ptb-mos: rank 8,000": HEADS["mos"], "ptb-softmax: rank at least 400": HEADS["softmax"]}
    close(figure)


@pytest.mark.parametrize(
    ("head", "tokens", "projected", "least"),
    [("mos", 100, None, False), ("mos", 99, None, True), ("softmax", 99, None, False), ("softmax", 100, 50, True)],
)
def test_which_ranks_are_lower_bounds(head, tokens, projected, least):
    model = {"head": head, "tokens": tokens, "vocabulary": 100, "projected": projected}
    assert Analysis("x", "test", model, {}).at_least is least


HEAD = "recipe,settings,how,batch,bptt,K,median_ms,tokens_per_second,slowdown,paper_column,commit,machine\n"


def test_slowdowns_come_from_the_benchmark(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    csv = tmp_path / "benchmarks" / "step_h200.csv"
    csv.write_text(HEAD + 'ptb-softmax,train.batch_size=12,"mixed, graphs",12,70,1,4.0,210,1.0,PTB/bs,abc,NVIDIA H200\n'
                   'ptb-mos,,"mixed, graphs",12,70,15,3.0,280,0.75,PTB/bs,abc,NVIDIA H200\n'
                   'ptb-mos,,"float32, eager",12,70,15,30.0,28,7.5,PTB/bs,abc,NVIDIA H200\n'
                   'ptb-mos-5,model.n_components=5,"mixed, graphs",12,70,5,,,,PTB/bs,abc,NVIDIA H200\n')  # fmt: skip
    cells = numbers(tmp_path, "time")
    entry = cells["MoS-15", "PTB/bs", None]
    assert (entry["ours"], entry["paper"], entry["source"], entry["commit"]) == (0.75, 1.9, "table 13", "abc")
    assert cells["MoS-5", "PTB/bs", None]["ours"] is None  # it was skipped
    assert ("MoS-5", "PTB/best-1", None) not in cells  # the paper has no such cell either
    missing = table_of(tmp_path, "time").missing()
    assert ("MoS-5: PTB/bs" in missing, "MoS-5: PTB/best-1" in missing) == (True, False)
    assert "| `ptb-mos` | 12 x 70 | 3.00 | 280 | 0.75x | 1.9x |" in sections(build(tmp_path))["cost"]
    assert "| 1.9x | [**0.75x**](results/benchmarks/step_h200.csv) |" in sections(build(tmp_path))["time"]
    good = 'ptb-mos,,"mixed, graphs",12,70,15,3.0,280,0.75,PTB/bs,abc,NVIDIA H200\n'
    csv.write_text(HEAD + good.replace("3.0", "3e-05"))  # as Python writes what is small
    assert "| `ptb-mos` | 12 x 70 | 0.00 | 280 |" in sections(build(tmp_path))["cost"]
    for text, problem in (
        ("a,b\n1,2\n", "it has no column recipe"),
        (HEAD.replace("bptt", "x") + good, "it has no column bptt"),
        (HEAD + good + good.replace("3.0", "fast"), 'median_ms of row 2 is "fast", not a number'),
        (HEAD + good.replace("0.75", "slow"), 'slowdown of row 1 is "slow", not a number'),
        (HEAD + good.replace(",15,", ",,"), 'K of row 1 is "", not a number'),
        (HEAD + "ptb-mos,,plain,12,70,15,3.0\n", 'tokens_per_second of row 1 is "", not a number'),
    ):
        csv.write_text(text)
        with pytest.raises(UserError, match=f"step_h200.csv is not a benchmark's CSV: {problem}; measure anew."):
            build(tmp_path)
    csv.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match=r"step_h200.csv is not a benchmark's CSV \(.*codec.*\); measure anew."):
        build(tmp_path)


def test_what_the_loss_costs_comes_from_the_benchmarks(tmp_path):
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    names = "size,N,K,D,V,dtype,implementation,status,median_ms,graph_ms,extra_mib,machine\n"
    (folder / "mos_nll_cpu.csv").write_text(
        names + 'ptb,840,15,280,10000,float32,"highrank, chunked",ok,100,,40,A CPU\n'
        "ptb,840,15,280,10000,float32,naive,ok,150,,1200,A CPU\n"
        "wt2,1050,15,300,33278,float32,naive,ok,999,,,A CPU\n"
    )
    (folder / "mos_nll_h200.csv").write_text(
        names + 'ptb,840,15,280,10000,bfloat16,"highrank, triton",ok,2.5,1.25,30,An H200\n'
        "ptb,840,15,280,10000,bfloat16,broken,timed, 1.0,,30,An H200\n"
        "wt2,1050,15,300,33278,bfloat16,peer,ok,8,,,An H200\n"
    )
    text = sections(build(tmp_path))["cost"]
    assert [line for line in text.splitlines() if line.startswith("| ") and "implementation" not in line] == [
        "| highrank, chunked | 100 | 1.00 | 40 |",
        "| naive | 150 | 1.50 | 1,200 |",
        "| highrank, triton | 2.50 / 1.25 ms, 30 MiB | not run |",
        "| peer | not run | 8.00 ms |",
    ]


def test_figures_show_what_the_records_say(tmp_path):
    stages = [
        {"stage": 0, "epochs": 2, "seconds": 400.0, "valid_ppl": 73.0, "test_ppl": 71.0},
        {"stage": 1, "epochs": 3, "seconds": 590.0, "valid_ppl": 70.0, "test_ppl": 68.0},
    ]
    study = {f"k{k}": make(settings=[f"model.n_components={k}"], valid=80.0 + k, epochs=60) for k in (1, 5)}
    put(tmp_path, a=make(valid=70.0, stage=1, stages=stages), **study)
    (tmp_path / "analysis").mkdir()
    (tmp_path / "analysis" / "a.json").write_text(json.dumps(analysis("test", 9970)))
    made = figures(load_records(tmp_path), load_analyses(tmp_path))
    assert list(made) == ["curves-ptb", "components", "spectrum"]

    def lines(name, axis):
        return [[list(map(float, xy)) for xy in line.get_data()] for line in made[name][1].axes[axis].lines]

    for axis, x in ((0, [2.0, 3.0]), (1, [400 / 60, 590 / 60])):
        curve, averaging, finetuning, theirs = lines("curves-ptb", axis)
        assert curve == [x, [73.0, 70.0]]  # without the first epoch, whose loss was infinite
        assert (averaging, finetuning) == ([x[:1], [73.0]], [x[1:], [70.0]])
        assert theirs[1] == [58.08, 58.08]
    theirs, ours = lines("components", 0)
    assert theirs == [[3.0, 5.0, 10.0, 15.0, 20.0], [58.62, 57.36, 56.33, 55.97, 56.17]]
    assert ours == [[1.0, 5.0], [79.0, 83.0]]
    assert lines("components", 1)[1] == [[15.0], [9970.0]]
    assert lines("spectrum", 0) == [[[1.0, 2.0, 9.0], [1.0, 0.5, 0.05]]]
    for _, figure in made.values():
        close(figure)


def test_runs_are_told_apart_and_the_papers_line_is_in_sight(tmp_path):
    """Heads by colour, runs of one head by dashes; what differs from the recipe is named."""
    put(tmp_path, a=make("ptb-mos"), b=make("ptb-mos", settings=["train.lr=15"]), c=make("ptb-softmax"))
    ((_, figure),) = figures(load_records(tmp_path), []).values()
    for axis in figure.axes:
        curves = [line for line in axis.lines if "min" in line.get_label()]
        assert {line.get_label(): (line.get_color(), line.get_linestyle()) for line in curves} == {
            "ptb-softmax, 10 min": (HEADS["softmax"], "-"),
            "ptb-mos, 10 min": (HEADS["mos"], "-"),
            "ptb-mos, lr=15.0, 10 min": (HEADS["mos"], "--"),
        }
        low, high = axis.get_ylim()
        assert low < 58.08 < 70.123 < high
    close(figure)


def test_a_study_over_k_alone_still_shows_how_the_recipe_learned(tmp_path):
    put(tmp_path, **{f"k{k}": make(settings=[f"model.n_components={k}"], epochs=60) for k in (5, 15)})
    made = figures(load_records(tmp_path), [])
    assert list(made) == ["curves-ptb", "components"]
    for _, figure in made.values():
        close(figure)


def test_a_dot_marks_where_averaging_starts_anew(tmp_path):
    epochs = [1, 2, 3, 4, 5]
    curve = {"epoch": epochs, "seconds": [60.0 * e for e in epochs], "valid_ppl": [80.0 - e for e in epochs]}
    alone, whole = ({"exported": {"dtype": "float16", "averages_only": only}} for only in (True, False))
    pieces = [
        piece() | alone,
        piece(1) | alone,
        piece(3) | whole,
        piece(4) | alone,
    ]  # before averaging; anew; whole; at the end
    put(tmp_path, a=make(epochs=5, curve=curve, averaged_from=3, pieces=pieces))
    ((_, figure),) = figures(load_records(tmp_path), []).values()
    assert _marks(figure) == [("o", [3]), ("o", [4])]
    close(figure)


def test_where_finetuning_starts_from_averages_alone_a_triangle_is_enough(tmp_path):
    curve = {"epoch": [1, 2, 3], "seconds": [60.0, 120.0, 180.0], "valid_ppl": [80.0, 79.0, 78.0]}
    scores = {"seconds": 60.0, "valid_ppl": 79.0, "test_ppl": 77.0}
    stages = [{"stage": i, "epochs": epochs, **scores} for i, epochs in enumerate((2, 3))]
    pieces = [piece() | {"exported": {"dtype": "float16", "averages_only": True}}, piece(2)]
    put(tmp_path, a=make(epochs=3, curve=curve, averaged_from=1, pieces=pieces, stages=stages, stage=1))
    ((_, figure),) = figures(load_records(tmp_path), []).values()
    assert _marks(figure) == [("o", [1]), ("^", [3])]
    close(figure)


def _marks(figure):
    return [
        (line.get_marker(), line.get_xdata().tolist()) for line in figure.axes[0].lines if line.get_marker() in "o^"
    ]


def test_curves_of_a_few_epochs_are_left_out_beside_long_ones(tmp_path):
    put(tmp_path, trial=make("ptb-moc", epochs=12), run=make("ptb-moc", epochs=192), only=make("ptb-mos", epochs=12))
    ((_, figure),) = figures(load_records(tmp_path), []).values()
    shown = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert shown == ["ptb-moc, 10 min", "ptb-mos, 10 min"]  # the trial would be a third
    close(figure)


@pytest.mark.parametrize(
    ("began", "first", "count"),
    [
        ("10:00", 1, 1),  # the same run, later: its curve holds the earlier one's
        ("11:00", 1, 2),  # another run
        ("10:00", 2, 2),  # the same run, but its curve has lost the first epoch
        (None, 1, 2),  # nobody knows
    ],
)
def test_a_run_that_goes_on_is_drawn_once(tmp_path, began, first, count):
    def at(epochs, seconds, started):
        curve = {"epoch": epochs, "seconds": [60.0 * e for e in epochs], "valid_ppl": [80.0 - e for e in epochs]}
        place = {"commit": "abc", "machine": "NVIDIA H200", "torch": "2", "started": started}
        return make(epochs=epochs[-1], seconds=seconds, curve=curve, provenance=place)

    put(tmp_path, a=at([1, 2, 3], 180.0, began and "10:00"), b=at(list(range(first, 6)), 300.0, began))
    ((_, figure),) = figures(load_records(tmp_path), []).values()
    shown = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert shown == ["ptb-mos, 3 min", "ptb-mos, 5 min"][-count:]
    close(figure)


def test_what_is_not_a_record_is_named(tmp_path):
    put(tmp_path, a={"recipe": "ptb-mos"})
    with pytest.raises(UserError, match=r"a\.json is not a run record: it lacks epochs"):
        load_records(tmp_path)
    put(tmp_path, a=[1])
    with pytest.raises(UserError, match=r"a\.json is not a run record"):
        load_records(tmp_path)


@pytest.mark.parametrize(
    ("key", "wanted"),
    [("valid_ppl", "a number"), ("seconds", "a number"), ("provenance", "an object"), ("settings", "an object"),
     ("curve", "an object"), ("stages", "a list of objects"), ("pieces", "a list of objects")],
)  # fmt: skip
def test_nonsense_in_a_record_is_named(tmp_path, key, wanted):
    good = {"recipe": "ptb-mos", "epochs": 3, "seconds": 9, "valid_ppl": 60.0, "test_ppl": 59.0, "seed": 1}
    good |= {"provenance": {"machine": "a CPU"}}
    put(tmp_path, a=good)
    assert len(load_records(tmp_path)) == 1
    put(tmp_path, a=good | {key: "nonsense"})
    with pytest.raises(UserError, match=rf"a\.json is not a run record: its {key} is not {wanted}"):
        load_records(tmp_path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda r: r["stages"][0].pop("valid_ppl"), "its stages[0] lacks valid_ppl"),
        (lambda r: r["stages"][0].update(seconds="long"), "its stages[0].seconds is not a number of at least 0"),
        (lambda r: r["stages"].append(3), "its stages[1] is not an object"),
        (lambda r: r.update(stage=[]), "its stage is not a whole number of at least 0"),
        (lambda r: r.update(valid_ppl=math.nan), "its valid_ppl is not a number of at least 1"),
        (lambda r: r.update(valid_ppl=0.5), "its valid_ppl is not a number of at least 1"),
        (lambda r: r.update(seconds=True), "its seconds is not a number of at least 0"),
        (lambda r: r.update(recipe=None), "its recipe is not text"),
        (lambda r: r.update(test_ppl=10**400), "its test_ppl is not a number of at least 1"),
        (lambda r: r["pieces"][0].pop("epoch"), "its pieces[0] lacks epoch"),
        (lambda r: r["pieces"][0].update(exported=5), "its pieces[0].exported is not an object"),
        (lambda r: r["curve"].pop("seconds"), "its curve lacks seconds"),
        (lambda r: r["curve"].update(epoch=3), "its curve.epoch is not a list"),
        (lambda r: r["curve"]["seconds"].pop(), "its curve has lists of unequal length"),
        (lambda r: r["curve"]["seconds"].__setitem__(1, {}), "its curve.seconds[1] is not a number of at least 0"),
        (lambda r: r["curve"]["valid_ppl"].__setitem__(0, None), "its curve.valid_ppl[0] is not a number"),
        (lambda r: r.update(dynamic={"valid_ppl": "good"}), "its dynamic.valid_ppl is not a number of at least 1"),
        (lambda r: r.update(cache={"provenance": {"commit": 3}}), "its cache.provenance.commit is not text"),
        (lambda r: r["settings"].update(name={}), "its settings.name is not text"),
        (lambda r: r["settings"]["model"].clear(), "its settings.model lacks n_components"),
        (lambda r: r["provenance"].pop("machine"), "its provenance lacks machine"),
    ],
)  # fmt: skip
def test_nonsense_deep_inside_a_record_is_named(tmp_path, change, sentence):
    change(record := make())
    with pytest.raises(UserError) as raised:
        write(build(put(tmp_path, a=record)), tmp_path / "page")
    path = tmp_path / "runs" / "a.json"
    assert str(raised.value).startswith(f"{path} is not a run record: {sentence}")
    assert str(raised.value).endswith("; make it anew.")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda m: m.pop("head"), "its models[0] lacks head"),
        (lambda m: m.update(kld={"mean": "inf"}), "its models[0].kld lacks standard_error"),
        (lambda m: m.update(spectrum=["x"]), "its models[0].spectrum is not an object"),
        (lambda m: m["spectrum"]["index"].pop(), "its models[0].spectrum has lists of unequal length"),
    ],
)
def test_nonsense_in_an_analysis_is_named(tmp_path, change, sentence):
    data = analysis("test", 9970)
    change(data["models"][0])
    (tmp_path / "analysis").mkdir()
    path = tmp_path / "analysis" / "a.json"
    path.write_text(json.dumps(data))
    with pytest.raises(UserError, match=re.escape(f"{path} is not an analysis: {sentence}; make it anew.")):
        build(tmp_path)


def test_what_is_null_or_empty_in_a_record_is_as_if_missing(tmp_path):
    nothing = dict.fromkeys(("stages", "stage", "pieces", "curve", "dynamic", "averaged_from", "overrides"))
    curve = {"epoch": [], "seconds": [], "valid_ppl": []}
    endless = {"epoch": [1], "seconds": [9.0], "valid_ppl": [math.inf]}  # JSON's Infinity, of a run that diverged
    put(tmp_path, a=make() | nothing, b=make(curve=curve), c=make(curve=endless, valid_ppl=math.inf))
    (tmp_path / "analysis").mkdir()
    for name, spectrum in (
        ("none", None),
        ("empty", {"index": [], "values": []}),
        ("zero", {"index": [1], "values": [0]}),
    ):
        data = analysis("test", 9970, spectrum=spectrum)
        (tmp_path / "analysis" / f"{name}.json").write_text(json.dumps(data))
    report = build(tmp_path)
    assert len(report.records) == len(report.analyses) == 3
    for _, figure in figures(report.records, report.analyses).values():
        close(figure)
    assert figures([one for one in report.records if one.file == "c.json"], []) == {}  # nothing that could be drawn
    assert figures([], [one for one in report.analyses if one.file == "empty.json"]) == {}


def test_links_lead_to_records_whatever_their_names(tmp_path):
    put(tmp_path / "my results", **{"ü [x](y)": make()})
    report = build(tmp_path / "my results")
    link = "my%20results/runs/%C3%BC%20%5Bx%5D%28y%29.json"
    parts = sections(report, "my results")
    assert f"[record]({link})" in parts["results"]
    assert f"]({link})" in parts["ptb"]
    write(report, tmp_path / "page")
    assert f"]({link})" not in (tmp_path / "page" / "report.md").read_text()
    assert f"](../{link})" in (tmp_path / "page" / "report.md").read_text()
    page = (tmp_path / "page" / "report.html").read_text()
    assert page.count(f'href="../{link}"') == page.count('.json"') > 1
    assert "runs/ü [x](y).json" in [entry["record"] for entry in flat(table_of(report.results, "ptb"))]  # a file's name


def test_markers_choose_the_sections():
    marked = "a\n<!-- x: made by 'highrank report' -->\nold\n<!-- end of x -->\nb"
    once = fill(marked, {"x": "new", "y": "unused"})
    assert "old" not in once
    assert "unused" not in once
    assert fill(once, {"x": "new"}) == once
    with pytest.raises(UserError, match="has no markers for tables"):
        fill("no markers", {"results": "x"})
    with pytest.raises(UserError, match='no table "x" to put'):
        fill(marked, {"results": "x"})
    with pytest.raises(UserError, match="lacks the marker <!-- end of x -->"):
        fill(marked.replace("end of x", "end of it"), {"x": "new"})


def test_the_page_stands_alone(tmp_path):
    """Everything is inside; links lead to records; what a record says is escaped; the same records, the same bytes."""
    results = put(tmp_path / "results", a=make(valid=60.0),
                  b=make("wt2-mos", valid=60.0, pieces=[piece(), piece(2, "def")]),
                  c=make("ptb-softmax", settings=["train.lr=15"], seed="<b>1</b>"))  # fmt: skip
    (results / "analysis").mkdir()
    (results / "analysis" / "a.json").write_text(json.dumps(analysis("test", 9970)))
    files = write(build(results), tmp_path / "out")
    assert {f.name for f in files} == {"report.html", "report.md", *(f"{name}.{form}" for form in ("png", "svg")
                                       for name in ("curves-ptb", "curves-wt2", "spectrum"))}  # fmt: skip
    page = (tmp_path / "out" / "report.html").read_text()
    assert re.findall('class="ours good".*?>([^<]+)</a>', page) == ["60.00 / 58.00"] * 2  # wt2-mos
    assert "3 runs fill 12 of" in page
    assert [_run(record)["commit"] for record in load_records(results)] == ["abc", "abc", "def"]
    assert NOT_RUN in page
    assert page.count("<svg") == 3
    assert "<script" not in page
    assert "<b>1</b>" not in page
    assert not re.search(r'(src|href)="(?!#|\.\./results/)', re.sub(r"<svg.*?</svg>", "", page, flags=re.S))
    for target in re.findall(r'href="(\.\./results/[^"]+)"', page):
        assert (tmp_path / "out" / target).exists(), target
    anchors = re.findall(r'\bid="([^"]+)"', page)
    assert len(anchors) == len(set(anchors))
    for anchor in re.findall(r'href="#([^"]+)"', page):
        assert anchor in anchors
    text = (tmp_path / "out" / "report.md").read_text()
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert (tmp_path / "out" / target).exists(), target
    again = write(build(results), tmp_path / "again")
    for one, two in zip(files, again, strict=True):
        assert one.read_bytes() == two.read_bytes(), one.name
