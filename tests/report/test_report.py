"""The report reads records, shows what is missing, tells studies from main runs, and keeps the README's tables true."""

import copy
import json
import re
from pathlib import Path

import pytest

from highrank.errors import UserError
from highrank.recipes import get_recipe, override
from highrank.report import build, fill, sections
from highrank.report.components import study
from highrank.report.records import load_records
from highrank.report.table import NOT_RUN, flat
from highrank.report.write import write

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


def numbers(results, table):
    """(row, column, part) -> entry of `highrank report --json`."""
    (found,) = [t for t in build(results).tables if t.name == table]
    return {(e["row"], e["column"], e["part"]): e for e in flat(found)}


def test_the_readme_is_up_to_date():
    """If this fails: highrank report --readme README.md"""
    readme = (ROOT / "README.md").read_text()
    assert fill(readme, sections(build(ROOT / "results"))) == readme


def test_every_committed_record_says_where_it_comes_from():
    records = load_records(ROOT / "results")
    assert records
    for record in records:
        assert record.commit, record.file
        assert record.data["provenance"]["torch"], record.file
        assert record.data["curve"]["valid_ppl"], record.file


def test_nothing_run_says_so_everywhere(tmp_path):
    report = build(tmp_path)
    entries = [entry for table in report.tables for entry in flat(table)]
    assert entries
    assert all(entry["ours"] is None and entry["record"] is None for entry in entries)
    assert all(entry["source"] for entry in entries if entry["paper"] is not None)
    assert (
        "| `ptb-mos` | not run | not run | not run | 58.08 / 55.97 | 56.54 / 54.44 | |" in sections(report)["results"]
    )
    for number in (3, 4, 12, 14):
        assert any(text.startswith(f"table {number}:") for text in report.untouched())


def test_each_stage_is_a_row_beside_the_paper(tmp_path):
    stages = [{"stage": 0, "epochs": 600, "seconds": 2500.0, "valid_ppl": 58.3, "test_ppl": 56.2},
              {"stage": 1, "epochs": 800, "seconds": 3400.0, "valid_ppl": 56.7, "test_ppl": 54.6}]  # fmt: skip
    dynamic = {"settings": {}, "valid_ppl": 48.9, "test_ppl": 48.2, "seconds": 70.0}
    tuned = {**dynamic, "valid_ppl": 48.5, "test_ppl": 48.4, "tuning": {}}
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
    assert cells["ptb-softmax, finetuned", "valid / test", "test"]["ours"] is None
    assert "58.30 / 56.20" in sections(build(tmp_path))["ablation"]  # the ablation is without finetuning


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
    assert {"few", "text", "rate", "plain"} == {r.file.removesuffix(".json") for r in load_records(tmp_path)}


def test_ten_minutes_are_one_start_from_scratch_stopped_by_the_clock(tmp_path):
    put(tmp_path,
        good=make(valid=60.0, dynamic={"settings": {}, "valid_ppl": 52.0, "test_ppl": 51.0}),
        long=make(valid=50.0, seconds=900.0),
        counted=make(valid=49.0, outcome="max-epochs"),
        resumed=make(valid=48.0, pieces=[piece(), piece(2)]),
        imported=make(valid=47.0, pieces=[piece(2)]),
        cpu=make(valid=46.0, provenance={"commit": "abc", "machine": "A CPU, 2 threads"}),
        other=make(valid=45.0, settings=["model.n_components=5"]))  # fmt: skip
    cells = numbers(tmp_path, "ten-minutes")
    assert cells["ptb-mos", "valid / test", "valid"]["ours"] == 60.0
    assert cells["ptb-mos", "valid / test", "valid"]["paper"] == 58.08
    assert cells["ptb-mos", "+ dynamic evaluation", "test"]["ours"] == 51.0
    assert cells["wt2-moc", "valid / test", "test"]["ours"] is None
    assert sum(key[0] == "ptb-mos" for key in cells) == 4  # one row


def test_the_table_over_k_compares_equal_epochs(tmp_path):
    same = {k: make(settings=[f"model.n_components={k}"], valid=60 + 9 / k, epochs=60) for k in (1, 5, 15)}
    put(tmp_path, **{f"k{k}": record for k, record in same.items()},
        longer=make(settings=["model.n_components=5"], valid=50.0, epochs=90),
        tuned=make(settings=["model.n_components=3", "train.lr=15"], valid=50.0, epochs=60),
        finetuned=make(settings=["model.n_components=10"], valid=50.0, epochs=60, stage=1))  # fmt: skip
    assert sorted(study(load_records(tmp_path))) == [1, 5, 15]
    cells = numbers(tmp_path, "components")
    assert cells["5", "test", None]["ours"] == pytest.approx(59.8)
    assert (cells["5", "test", None]["paper"], cells["5", "test", None]["source"]) == (57.36, "table 7")
    assert cells["3", "test", None]["ours"] is None
    (table,) = [t for t in build(tmp_path).tables if t.name == "components"]
    assert "Ours after 60 epochs each" in table.about
    assert study(load_records(put(tmp_path / "one", alone=make()))) == {}


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
        "b": analysis("test", 9000, valid_ppl=70.0),  # of a worse model
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
    rank = numbers(tmp_path, "rank")
    assert (rank["MoS", "test", None]["ours"], rank["MoS", "test", None]["paper"]) == (9970, 9981)
    assert rank["MoS", "valid", None]["record"] == "analysis/deeper/c.json"
    assert rank["Softmax", "test", None]["ours"] == 402
    assert rank["MoC", "test", None]["ours"] is None
    assert numbers(tmp_path, "components")["5", "rank", None]["ours"] == 8000
    assert "≥ 8,000" in sections(build(tmp_path))["components"]  # projected: a lower bound
    (tmp_path / "analysis" / "a.json").unlink()
    (tmp_path / "analysis" / "b.json").unlink()
    assert "≥ 999" in sections(build(tmp_path))["rank"]
    (tmp_path / "analysis" / "a.json").write_text(json.dumps(found["a"]))
    kld = numbers(tmp_path, "kld")
    assert (kld["MoS", "test", None]["ours"], kld["MoS", "test", None]["source"]) == (5.2, "table 11")
    assert kld["Softmax", "test", None]["ours"] is None
    (tmp_path / "analysis" / "f.json").write_text('{"kind": "analysis", "models": []}')
    with pytest.raises(UserError, match=r"f\.json is not an analysis"):
        build(tmp_path)


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
    assert "| `ptb-mos` | 12 x 70 | 3.00 | 280 | 0.75x | 1.9x |" in sections(build(tmp_path))["cost"]
    csv.write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="is not a benchmark's CSV"):
        build(tmp_path)


def test_what_is_not_a_record_is_named(tmp_path):
    put(tmp_path, a={"recipe": "ptb-mos"})
    with pytest.raises(UserError, match=r"a\.json is not a run record: it lacks epochs"):
        load_records(tmp_path)
    put(tmp_path, a=[1])
    with pytest.raises(UserError, match=r"a\.json is not a run record"):
        load_records(tmp_path)


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
    results = put(tmp_path / "results", a=make(valid=60.0), b=make("wt2-mos", valid=75.0),
                  c=make("ptb-softmax", settings=["train.lr=15"], seed="<b>1</b>"))  # fmt: skip
    (results / "analysis").mkdir()
    (results / "analysis" / "a.json").write_text(json.dumps(analysis("test", 9970)))
    files = write(build(results), tmp_path / "out")
    assert {f.name for f in files} == {"report.html", "report.md", *(f"{name}.{form}" for form in ("png", "svg")
                                       for name in ("curves-ptb", "curves-wt2", "spectrum"))}  # fmt: skip
    page = (tmp_path / "out" / "report.html").read_text()
    assert "60.00 / 58.00" in page
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
