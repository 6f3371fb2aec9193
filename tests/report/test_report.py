"""The tables of the report hold the right numbers of the right records."""

from pathlib import Path

import pytest

from highrank.bench.mos_nll import LossRow
from highrank.bench.step import BENCH_ONLY, CASES, FAST, PLAIN, StepRow
from highrank.bench.table import Table
from highrank.errors import UserError
from highrank.recipes import get_recipe, override
from highrank.report import paper
from highrank.report.build import build_report
from highrank.report.rank import component_study
from highrank.report.records import load_runs
from highrank.report.results import Quantity, Result
from result_files import PROVENANCE, adaptation, analysis, piece, run_record, stage, write_results

ROOT = Path(__file__).parents[2]
BOTH = "valid / test"


def entries(results, table):
    """Return the numbers of a table as `highrank report --json` prints them, by row, column and part."""
    (found,) = [one for one in build_report(results).tables if one.name == table]
    return {(entry["row"], entry["column"], entry["part"]): entry for entry in found.entries()}


def texts(results, section):
    """Return the texts of a table's cells by row and column."""
    table = build_report(results).sections("results")[section].table
    names = [column.name for column in table.columns]
    rows = [["".join(cell.text).replace("\u00a0", " ") for cell in row] for row in table.rows]
    return {row[0]: dict(zip(names, row, strict=True)) for row in rows}


# --- which records are shown ----------------------------------------------------------------------------------------


def test_committed_records_name_their_commit():
    runs = load_runs(ROOT / "results")
    assert runs
    assert all(run.commit() for run in runs)


def test_an_empty_folder_gives_the_papers_numbers_alone(tmp_path):
    report = build_report(tmp_path)
    found = [entry for table in report.tables for entry in table.entries()]
    assert found
    assert all(entry["ours"] is None and entry["record"] is None for entry in found)
    assert all(entry["source"] for entry in found if entry["paper"] is not None)
    assert any("12" in item for item in report.missing())


def test_each_state_of_a_run_is_compared_with_the_papers(tmp_path):
    elsewhere = {**PROVENANCE, "commit": "xyz", "machine": "NVIDIA A100"}
    record = run_record(
        valid=56.7, epochs=800, seconds=3400.0, stage=1, stages=[stage(0, 600, 58.3, 2500.0), stage(1, 800, 56.7)],
        dynamic=adaptation(48.9, provenance=elsewhere), pieces=[piece(), piece(400, "def")],
    )  # fmt: skip
    cells = entries(write_results(tmp_path, {"whole": record, "short": run_record()}), "ptb")
    trained = cells["ptb-mos, without finetuning", BOTH, "test"]
    assert (trained["paper"], trained["source"], trained["ours"]) == (55.97, "table 1", pytest.approx(56.3))
    assert (trained["epochs"], trained["seconds"], trained["seed"], trained["commit"]) == (600, 2500.0, 28, "def")
    finetuned = cells["ptb-mos, finetuned", BOTH, "valid"]
    assert (finetuned["paper"], finetuned["ours"], finetuned["epochs"]) == (56.54, 56.7, 800)
    dynamic = cells["ptb-mos, + dynamic evaluation", BOTH, "valid"]
    assert (dynamic["paper"], dynamic["ours"], dynamic["seconds"]) == (48.33, 48.9, 3400.0)
    assert (dynamic["adapted"]["commit"], dynamic["adapted"]["machine"]) == ("xyz", "A100")
    assert trained["adapted"] is finetuned["adapted"] is None
    assert entries(tmp_path, "ablation")["AWD-LSTM-MoS", "PTB valid / test", "valid"]["ours"] == 58.3


def test_pieces_commit_and_machine_are_those_of_the_stage(tmp_path):
    pieces = [piece(), piece(400, "def"), piece(600, "ghi", "NVIDIA A100")]
    stages = [stage(0, 600, 58.3), stage(1, 800, 56.7)]
    record = run_record(valid=56.7, epochs=800, stage=1, stages=stages, pieces=pieces)
    cells = entries(write_results(tmp_path, {"a": record}), "ptb")
    trained = cells["ptb-mos, without finetuning", BOTH, "test"]
    finetuned = cells["ptb-mos, finetuned", BOTH, "test"]
    assert (trained["about"], trained["commit"], trained["machine"]) == ("in 2 pieces", "def", "H200")
    assert (finetuned["about"], finetuned["commit"], finetuned["machine"]) == ("in 3 pieces", "ghi", "H200 and A100")


@pytest.mark.parametrize(("epochs", "finetuned"), [(3, None), (4, 70.0)])
def test_finetuning_counts_from_its_first_completed_epoch(tmp_path, epochs, finetuned):
    record = run_record(epochs=epochs, stage=1, stages=[stage(0, 3), stage(1, epochs)])
    cells = entries(write_results(tmp_path, {"a": record}), "ptb")
    assert cells["ptb-mos, finetuned", BOTH, "valid"]["ours"] == finetuned


def test_validation_chooses_among_runs_not_test(tmp_path):
    lucky = run_record(valid=65.0, stages=[{**stage(valid=65.0), "test_ppl": 50.0}])
    write_results(tmp_path, {"good": run_record(valid=64.0), "lucky": lucky})
    assert entries(tmp_path, "ptb")["ptb-mos, without finetuning", BOTH, "test"]["record"] == "runs/good.json"


def test_validation_chooses_between_published_and_tuned_settings(tmp_path):
    tuned = {**adaptation(49.0), "test_ppl": 40.0}
    write_results(tmp_path, {"a": run_record(dynamic=adaptation(48.0), dynamic_tuned=tuned)})
    assert entries(tmp_path, "ptb")["ptb-mos, + dynamic evaluation", BOTH, "test"]["ours"] == 47.0


def test_runs_are_sorted_by_recipe_epochs_and_number(tmp_path):
    runs = {"k15": run_record(), "k3": run_record(), "long": run_record(epochs=100), "wt": run_record("wt2-mos")}
    runs["own"] = {**run_record(), "recipe": "somebody's"}
    files = [run.file.removesuffix(".json") for run in load_runs(write_results(tmp_path, runs))]
    assert files == ["k3", "k15", "long", "wt", "own"]


def test_another_model_or_text_does_not_represent_the_recipe(tmp_path):
    runs = {
        "few": run_record(settings=["model.n_components=5"], valid=50.0),
        "text": run_record(settings=["data.corpus=elsewhere"], valid=40.0),
        "rate": run_record(settings=["train.lr=15"], valid=65.0),
        "seed": run_record(settings=["train.seed=5"], valid=66.0),
    }
    cell = entries(write_results(tmp_path, runs), "ptb")["ptb-mos, without finetuning", BOTH, "valid"]
    assert (cell["ours"], cell["about"]) == (65.0, "with train.lr=15.0")
    (seed,) = [run for run in load_runs(tmp_path) if run.file == "seed.json"]
    assert seed.changes == {}


def test_ten_minutes_are_one_start_from_scratch_stopped_by_the_time_budget(tmp_path):
    runs = {
        "good": run_record(valid=60.0, dynamic=adaptation(52.0)),
        "long": run_record(valid=50.0, seconds=900.0),
        "brief": run_record(valid=51.0, seconds=100.0),
        "counted": run_record(valid=49.0, outcome="max-epochs"),
        "resumed": run_record(valid=48.0, pieces=[piece(), piece(2)]),
        "imported": run_record(valid=47.0, pieces=[piece(2)]),
        "cpu": run_record(valid=46.0, pieces=[piece(machine="A CPU, 2 threads")]),
        "other": run_record(valid=45.0, settings=["model.n_components=5"]),
        "plus": run_record("wt2-mos-plus", valid=62.0),
    }
    (table,) = [one for one in build_report(write_results(tmp_path, runs)).tables if one.name == "ten-minutes"]
    valid = [entry for entry in table.entries() if entry["ours"] and entry["part"] == "valid"]
    assert [(entry["row"], entry["column"], entry["ours"]) for entry in valid] == [
        ("ptb-mos", BOTH, 60.0),
        ("ptb-mos", "+ dynamic evaluation", 52.0),
        ("wt2-mos-plus", BOTH, 62.0),
    ]


# --- the README's table -------------------------------------------------------------------------------------------


def test_the_overview_has_the_best_run_of_each_recipe(tmp_path):
    write_results(tmp_path, {"a": run_record(valid=60.0, dynamic=adaptation(50.0)), "b": run_record(valid=61.0)})
    rows = texts(tmp_path, "results")
    assert rows["ptb-mos"][BOTH] == "60.00 / 58.00"
    assert rows["ptb-mos"]["+ dynamic evaluation"] == "50.00 / 49.00"
    assert (rows["ptb-mos"]["the paper's"], rows["ptb-mos"]["finetuned"]) == ("58.08 / 55.97", "56.54 / 54.44")
    assert rows["wt2-mos"]["record"] == ""


def test_our_own_recipes_follow_the_papers_once_they_were_run(tmp_path):
    assert "ptb-mos-plus" not in texts(tmp_path, "results")
    rows = texts(write_results(tmp_path, {"plus": run_record("ptb-mos-plus", valid=58.07)}), "results")
    assert list(rows)[-1] == "ptb-mos-plus"
    assert (rows["ptb-mos-plus"]["the paper's"], rows["ptb-mos-plus"]["finetuned"]) == ("-", "-")
    assert entries(tmp_path, "ptb")["ptb-mos-plus, without finetuning", BOTH, "valid"]["ours"] == 58.07


# --- analyses -------------------------------------------------------------------------------------------------------


def test_the_study_over_k_compares_equal_epochs(tmp_path):
    runs = {f"k{k}": run_record(settings=[f"model.n_components={k}"], valid=60 + k, epochs=60) for k in (1, 5, 15)}
    runs["longer"] = run_record(settings=["model.n_components=5"], valid=50.0, epochs=90)
    runs["worse"] = run_record(settings=["model.n_components=5"], valid=70.0, epochs=60)
    runs["text"] = run_record("wt2-mos", settings=["model.n_components=20"], epochs=60)
    runs["rate"] = run_record(settings=["model.n_components=3", "train.lr=15"], epochs=60)
    stages = [stage(0, 50), stage(1, 60)]
    runs["finetuned"] = run_record(settings=["model.n_components=10"], epochs=60, stage=1, stages=stages)
    cells = entries(write_results(tmp_path, runs), "components")
    assert {row: cell["ours"] for (row, column, _), cell in cells.items() if column == "valid" and cell["ours"]} == {
        "1": 61.0, "5": 65.0, "15": 75.0,
    }  # fmt: skip
    assert (cells["5", "test", None]["paper"], cells["5", "test", None]["source"]) == (57.36, "table 7")


def test_one_run_is_not_a_study(tmp_path):
    assert component_study(load_runs(write_results(tmp_path, {"alone": run_record()}))) == {}


def test_analyses_fill_the_tables_of_rank_and_divergence(tmp_path):
    softmax = analysis("test", 402, "ptb-softmax", 1, "softmax", kld=None)
    write_results(tmp_path, None, {"a": analysis("test", 9970), "deeper/b": analysis("valid", 9971), "c": softmax})
    rank = entries(tmp_path, "rank")
    assert (rank["MoS", "test", None]["ours"], rank["MoS", "test", None]["paper"]) == (9970, 9981)
    assert rank["MoS", "valid", None]["record"] == "analysis/deeper/b.json"
    assert rank["Softmax", "test", None]["ours"] == 402
    assert rank["MoC", "test", None]["ours"] is None
    kld = entries(tmp_path, "kld")
    assert (kld["MoS", "test", None]["ours"], kld["MoS", "test", None]["error"]) == (5.2, 0.01)
    assert kld["Softmax", "test", None]["ours"] is None
    assert texts(tmp_path, "kld")["MoS"]["ours"] == "5.200 ± 0.010"


def test_a_model_without_a_recipe_is_not_in_the_tables(tmp_path):
    assert build_report(write_results(tmp_path, None, {"a": analysis(recipe=None)})).analyses == []


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({}, "900"),
        ({"projected": 950}, "≥ 900"),
        ({"tokens": 999}, "≥ 900"),
        ({"tokens": 999, "head": "softmax"}, "900"),
    ],
)
def test_ranks_that_are_lower_bounds_are_marked(tmp_path, changes, shown):
    write_results(tmp_path, None, {"a": analysis("test", 900, k=5, **changes)})
    row = build_report(tmp_path).sections("results")["components"].table.rows[2]
    assert row[5].text.replace("\u00a0", " ") == shown


def test_the_best_analysis_of_the_recipes_own_k_is_shown(tmp_path):
    analyses = {
        "bound": analysis("test", 999, epochs=50, tokens=999),
        "long": analysis("test", 8000, epochs=9),
        "short": analysis("test", 7000, epochs=3),
        "few": analysis("test", 9000, epochs=99, k=5),
    }
    write_results(tmp_path, None, analyses)
    for table in ("rank", "kld"):
        assert entries(tmp_path, table)["MoS", "test", None]["record"] == "analysis/long.json"


def test_the_rank_over_k_is_of_the_models_in_the_study(tmp_path):
    runs = {f"k{k}": run_record(settings=[f"model.n_components={k}"], epochs=60) for k in (5, 15)}
    write_results(tmp_path, runs, {"a": analysis(rank=60, epochs=60), "b": analysis(rank=90, epochs=90)})
    assert entries(tmp_path, "components")["15", "rank", None]["ours"] == 60


# --- benchmarks -----------------------------------------------------------------------------------------------------

ORIGIN = {**PROVENANCE, "device": "cuda"}


def step(recipe="ptb-mos", K=15, **changes):
    values = {"settings": "", "how": FAST, "precision": "mixed", "graphs": True, "batch": 12, "bptt": 70,
              "vocabulary": 9, "softmax": "ptb-softmax", "paper_column": "PTB/bs", **ORIGIN}  # fmt: skip
    return StepRow(**{**values, "recipe": recipe, "K": K, **changes})


def loss(implementation, size="ptb", **changes):
    values = {"N": 840, "K": 15, "D": 280, "V": 10_000, "dtype": "float32", **ORIGIN}
    return LossRow(**{**values, "implementation": implementation, "size": size, **changes})


def write_benchmark(results, name, rows):
    (results / "benchmarks").mkdir(exist_ok=True)
    Table(results / "benchmarks" / name, type(rows[0])).replace(rows)


def test_slowdowns_come_from_the_fastest_steps(tmp_path):
    rows = [
        step("ptb-softmax", 1, median_ms=4.0, tokens_per_second=210.0, slowdown=1.0),
        step(median_ms=3.0, tokens_per_second=280.0, slowdown=0.75),
        step(median_ms=30.0, tokens_per_second=28.0, slowdown=7.5, how=PLAIN),
        step("ptb-mos-5", 5, status="skipped: no time left"),
    ]
    write_benchmark(tmp_path, "step_h200.csv", rows)
    cells = entries(tmp_path, "time")
    cell = cells["MoS-15", "PTB/bs", None]
    assert (cell["ours"], cell["paper"], cell["source"], cell["commit"]) == (0.75, 1.9, "table 13", "abc")
    assert cells["MoS-5", "PTB/bs", None]["ours"] is None
    assert ("MoS-5", "PTB/best-1", None) not in cells  # the paper does not have it either
    assert [list(row.values()) for row in texts(tmp_path, "steps").values()] == [
        ["ptb-softmax", "12 x 70", "4.00", "210", "1.00x", "-"],
        ["ptb-mos", "12 x 70", "3.00", "280", "0.75x", "1.9x"],
    ]


def test_the_loss_on_a_cpu_is_shown_at_the_first_size(tmp_path):
    rows = [
        loss("ours", median_ms=100.0, times_ours=1.0, extra_mib=40.0),
        loss("naive", median_ms=150.0, times_ours=1.5, extra_mib=1200.0),
        loss("naive", "wt2", median_ms=999.0),
    ]
    write_benchmark(tmp_path, "mos_nll_cpu.csv", rows)
    assert [list(row.values()) for row in texts(tmp_path, "cost-cpu").values()] == [
        ["ours", "100", "1.00", "40"],
        ["naive", "150", "1.50", "1,200"],
    ]


def test_the_loss_on_a_gpu_has_a_column_per_size(tmp_path):
    rows = [
        loss("ours", median_ms=2.5, graph_ms=1.25, extra_mib=30.0),
        loss("peer", "wt2", median_ms=8.0),
        loss("broken", status="failed: out of memory"),
    ]
    write_benchmark(tmp_path, "mos_nll_h200.csv", rows)
    assert [list(row.values()) for row in texts(tmp_path, "cost").values()] == [
        ["ours", "2.50 / 1.25 ms, 30 MiB", "not run"],
        ["peer", "not run", "8.00 ms"],
    ]


# --- results --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "good"), [((58.0, 56.0), True), ((57.0, 55.0), True), ((57.0, 56.1), False), ((58.1, 55.0), False)]
)
def test_as_good_means_both_valid_and_test(ours, good):
    assert Result((58.0, 56.0), ours).is_as_good(Quantity("ppl", ("valid", "test"))) is good


@pytest.mark.parametrize(
    ("kind", "key"), [("run", "seed"), ("run", "stages[0].valid_ppl"), ("analysis", "models[0].head")]
)
def test_an_unreadable_record_names_file_and_key(tmp_path, kind, key):
    record = run_record() if kind == "run" else analysis()
    if key == "seed":
        del record["seed"]
    elif kind == "run":
        record["stages"][0]["valid_ppl"] = "good"
    else:
        del record["models"][0]["head"]
    write_results(tmp_path, *([{"a": record}] if kind == "run" else [None, {"a": record}]))
    with pytest.raises(UserError) as raised:
        build_report(tmp_path)
    assert str(tmp_path) in str(raised.value)
    assert f'"{key}"' in str(raised.value)


# --- the paper ------------------------------------------------------------------------------------------------------


def test_numbers_that_the_paper_prints_twice_agree():
    recipes = {case: BENCH_ONLY.get(case.recipe) or get_recipe(case.recipe) for case in CASES.values()}
    k = {case: override(recipe, list(case.settings)).model.n_components for case, recipe in recipes.items()}
    slowdowns = {(case.column, k[case]): case.paper for case in k if case.paper and case.paper != 1}
    assert slowdowns == {(column, k): x for k, row in paper.SLOWDOWN.items() for column, x in row.items()}
    assert paper.RANK["ptb-mos"].test == paper.COMPONENTS[15].rank
    assert get_recipe("ptb-mos").paper[0].test == paper.COMPONENTS[15].test
    assert paper.RANK["ptb-softmax"].test == get_recipe("ptb-softmax").model.embed_dim
    assert paper.RANK["ptb-moc"].test == get_recipe("ptb-moc").model.embed_dim
