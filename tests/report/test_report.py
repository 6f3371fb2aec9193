"""The tables of the report hold the right numbers of the right records."""

from pathlib import Path

import pytest

from highrank.errors import UserError
from highrank.recipes import get_recipe
from highrank.report import paper
from highrank.report.build import build_report
from highrank.report.records import load_runs
from measure import write_csv
from result_files import PROVENANCE, adaptation, analysis, piece, run_record, stage, write_results

ROOT = Path(__file__).parents[2]
BOTH = "valid / test"


def entries(results, table):
    """Return the numbers of a table as `highrank report --json` prints them, by row, column and part."""
    found = [entry for entry in build_report(results).entries if entry["table"] == table]
    return {(entry["row"], entry["column"], entry["part"]): entry for entry in found}


def texts(results, section):
    """Return the texts of a table's cells by the heading of the row."""
    rows = build_report(results).tables[section].rows
    return {row[0].code + row[0].text: [cell.text.replace("\u00a0", " ") for cell in row[1:]] for row in rows}


def test_committed_records_name_their_commit():
    runs = load_runs(ROOT / "results")
    assert runs
    assert all(run.origin(run.record.epochs, 0.0).commit for run in runs)


def test_an_empty_folder_gives_the_papers_numbers_alone(tmp_path):
    found = build_report(tmp_path).entries
    assert found
    assert all(entry["paper"] and entry["ours"] is None and entry["record"] is None for entry in found)


def test_each_state_of_a_run_is_compared_with_the_papers(tmp_path):
    record = run_record(
        valid=56.7, epochs=800, seconds=3400.0, stage=1, stages=[stage(0, 600, 58.3, 2500.0), stage(1, 800, 56.7)],
        dynamic=adaptation(48.9), pieces=[piece(), piece(400, "def"), piece(600, "ghi", "NVIDIA A100")],
    )  # fmt: skip
    cells = entries(write_results(tmp_path, {"whole": record, "short": run_record()}), "ptb")
    trained = cells["ptb-mos, without finetuning", BOTH, "test"]
    assert (trained["paper"], trained["ours"], trained["seed"]) == (55.97, pytest.approx(56.3), 28)
    assert (trained["epochs"], trained["seconds"]) == (600, 2500.0)
    assert (trained["commit"], trained["machine"]) == ("def", "H200")
    finetuned = cells["ptb-mos, finetuned", BOTH, "valid"]
    assert (finetuned["paper"], finetuned["ours"], finetuned["epochs"]) == (56.54, 56.7, 800)
    assert (finetuned["about"], finetuned["commit"], finetuned["machine"]) == ("in 3 pieces", "ghi", "H200 and A100")
    dynamic = cells["ptb-mos, + dynamic evaluation", BOTH, "valid"]
    assert (dynamic["paper"], dynamic["ours"], dynamic["seconds"]) == (48.33, 48.9, 3400.0)
    assert entries(tmp_path, "ablation")["AWD-LSTM-MoS", "PTB valid / test", "valid"]["ours"] == 58.3


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


def test_another_model_or_text_does_not_represent_the_recipe(tmp_path):
    runs = {
        "few": run_record(settings=["model.n_components=5"], valid=50.0),
        "text": run_record(settings=["data.corpus=elsewhere"], valid=40.0),
        "rate": run_record(settings=["train.lr=15"], valid=65.0),
        "seed": run_record(settings=["train.seed=5"], valid=66.0),
        "warm": run_record(valid=30.0, init_from="text"),
    }
    cell = entries(write_results(tmp_path, runs), "ptb")["ptb-mos, without finetuning", BOTH, "valid"]
    assert (cell["ours"], cell["about"]) == (65.0, "with train.lr=15")


def test_the_table_of_all_runs_has_adaptations_and_other_starts(tmp_path):
    runs = {"plain": run_record(valid=70.0), "warm": run_record(valid=60.0, init_from="plain")}
    write_results(tmp_path, runs)
    columns = [column.name for column in build_report(tmp_path).shown["runs"].columns]
    tuned = {"dynamic": adaptation(52.0), "dynamic_tuned": adaptation(51.0)}
    table = build_report(write_results(tmp_path, {"adapted": run_record(valid=65.0, **tuned)})).shown["runs"]
    assert {column.name for column in table.columns} - set(columns) == {"+ dynamic evaluation"}
    rows = {row[0].code: [cell.text.replace("\u00a0", " ") for cell in row[3:]] for row in table.rows}
    assert rows["adapted"][:2] == ["65.00 / 63.00", "51.00 / 50.00"]
    assert rows["plain"][1] == ""
    assert "plain" in rows["warm"][-1]


def test_changes_are_those_from_the_recipe_of_today(tmp_path):
    record = run_record(valid=65.0)
    record["settings"]["train"]["optimizer"] = "adam"  # as if the recipe had said so when the run was made
    record["settings"]["train"]["finetune_lr"] = None
    cell = entries(write_results(tmp_path, {"old": record}), "ptb")["ptb-mos, without finetuning", BOTH, "valid"]
    assert set(cell["about"].removeprefix("with ").split()) == {"train.optimizer=adam", "train.finetune_lr=none"}


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
    cells = entries(write_results(tmp_path, runs), "ten-minutes")
    assert {key: entry["ours"] for key, entry in cells.items() if entry["ours"] and key[2] == "valid"} == {
        ("ptb-mos", BOTH, "valid"): 60.0,
        ("ptb-mos", "+ dynamic evaluation", "valid"): 52.0,
        ("wt2-mos-plus", BOTH, "valid"): 62.0,
    }


def test_the_headline_takes_our_best_recipe_by_validation_in_each_state(tmp_path):
    runs = {
        "mos": run_record(valid=60.0, dynamic=adaptation(49.0)),
        "plus": run_record("ptb-mos-plus", valid=58.0, dynamic=adaptation(50.0)),
    }
    rows = texts(write_results(tmp_path, runs), "headline")
    paper_number, ours, _, family = rows["Penn Treebank, without finetuning"]
    assert (paper_number, ours, family) == ("55.97", "56.00", "-")
    assert rows["Penn Treebank, + dynamic evaluation"][:2] == ["47.69", "48.00"]
    assert rows["Penn Treebank, finetuned"][1] == rows["WikiText-2, finetuned"][1] == "not run"
    assert rows["WikiText-2, + dynamic evaluation"][3].startswith("38.65")


def test_recipes_of_our_own_have_a_table_of_their_own(tmp_path):
    rows = texts(write_results(tmp_path, {"plus": run_record("ptb-mos-plus", valid=58.0)}), "own-recipes")
    assert rows["ptb-mos-plus, without finetuning"][0] == "58.00 / 56.00"
    assert rows["wt2-mos-plus"][0] == "not run"
    assert not any("plus" in row for row in texts(tmp_path, "ptb"))


def test_the_study_over_k_has_runs_of_90_epochs_that_differ_in_k_alone(tmp_path):
    def run(k, *settings, recipe="ptb-mos-plus", epochs=90, valid=60.0):
        return run_record(recipe, settings=[f"model.n_components={k}", *settings], epochs=epochs, valid=valid)

    runs = {f"k{k}": run(k, "train.eval_batch_size=40", valid=60 + k) for k in (1, 5, 15)}
    runs["longer"] = run(5, epochs=193)
    runs["worse"] = run(5, valid=70.0)
    runs["recipe"] = run(20, recipe="ptb-mos")
    runs["rate"] = run(3, "train.lr=15")
    analyses = {f"{epochs}": analysis("test", epochs, "ptb-mos-plus", epochs=epochs) for epochs in (60, 90)}
    write_results(tmp_path, runs, analyses)
    cells = entries(tmp_path, "components")
    valid = {row: cell["ours"] for (row, column, _), cell in cells.items() if column == "valid"}
    assert valid == {"1": 61.0, "5": 65.0, "15": 75.0}
    assert cells["5", "test", None]["paper"] == 57.36
    assert cells["15", "rank", None]["ours"] == 90


def test_analyses_fill_the_tables_of_rank_and_divergence(tmp_path):
    softmax = analysis("test", 402, "ptb-softmax", 1, "softmax", kld=None)
    write_results(tmp_path, None, {"a": analysis("test", 9970), "deeper/b": analysis("valid", 9971), "c": softmax})
    write_results(tmp_path, None, {"unknown": analysis("test", 9999, None)})
    rank = entries(tmp_path, "rank")
    assert (rank["MoS", "test", None]["ours"], rank["MoS", "test", None]["paper"]) == (9970, 9981)
    assert rank["MoS", "valid", None]["record"] == "analysis/deeper/b.json"
    assert rank["Softmax", "test", None]["ours"] == 402
    assert rank["MoC", "test", None]["ours"] is None
    kld = entries(tmp_path, "kld")
    assert (kld["MoS", "test", None]["ours"], kld["MoS", "test", None]["error"]) == (5.2, 0.01)
    assert kld["Softmax", "test", None]["ours"] is None
    assert texts(tmp_path, "kld")["MoS"][3] == "5.200 ± 0.010"


@pytest.mark.parametrize(
    ("changes", "shown"),
    [({}, "900"), ({"tokens": 999}, "≥ 900"), ({"tokens": 999, "head": "moc"}, "900")],
)
def test_ranks_that_are_lower_bounds_are_marked(tmp_path, changes, shown):
    write_results(tmp_path, None, {"a": analysis("test", 900, "ptb-mos-plus", k=5, epochs=90, **changes)})
    assert texts(tmp_path, "components")["5"][4] == shown


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


def step(recipe="ptb-mos", K=15, **changes):
    values = {"settings": "", "how": "mixed, graphs", "batch": 12, "bptt": 70, "median_ms": None,
              "tokens_per_second": None, "slowdown": None, "paper_column": "PTB/bs", **PROVENANCE}  # fmt: skip
    return {**values, "recipe": recipe, "K": K, **changes}


def loss(implementation, size="ptb", **changes):
    values = {"N": 840, "K": 15, "D": 280, "V": 10_000, "dtype": "float32", "device": "cuda", "median_ms": None,
              "graph_ms": None, "extra_mib": None, **PROVENANCE}  # fmt: skip
    return {**values, "implementation": implementation, "size": size, **changes}


def write_benchmark(results, name, rows):
    (results / "benchmarks").mkdir(exist_ok=True)
    write_csv(results / "benchmarks" / name, rows)


def test_slowdowns_come_from_the_fastest_steps(tmp_path):
    rows = [
        step("ptb-softmax", 1, median_ms=4.0, tokens_per_second=210.0, slowdown=1.0),
        step(median_ms=3.0, tokens_per_second=280.0, slowdown=0.75),
        step(median_ms=30.0, tokens_per_second=28.0, slowdown=7.5, how="float32, eager"),
        step("ptb-mos-5", 5, status="failed: no memory left"),
    ]
    write_benchmark(tmp_path, "step_h200.csv", rows)
    cells = entries(tmp_path, "time")
    cell = cells["MoS-15", "PTB/bs", None]
    assert (cell["ours"], cell["paper"], cell["commit"]) == (0.75, 1.9, "abc")
    assert cells["MoS-5", "PTB/bs", None]["ours"] is None
    assert ("MoS-5", "PTB/best-1", None) not in cells  # the paper does not have it either
    assert texts(tmp_path, "steps") == {
        "ptb-softmax": ["12 x 70", "4.00", "210", "1.00x", "-"],
        "ptb-mos": ["12 x 70", "3.00", "280", "0.75x", "1.9x"],
    }


def test_the_caption_of_the_steps_names_the_sizes_of_both_models(tmp_path):
    """A ratio of 0.80 is that of two models of different sizes: readers must see that first."""
    write_benchmark(tmp_path, "step_h200.csv", [step(median_ms=3.0, tokens_per_second=280.0, slowdown=0.8)])
    caption = build_report(tmp_path).tables["steps"].caption
    for recipe in ("ptb-softmax", "ptb-mos"):
        assert f"{get_recipe(recipe).model.hidden_sizes[0]:,}" in caption


def test_the_loss_has_a_column_per_size(tmp_path):
    rows = [
        loss("ours", median_ms=2.5, graph_ms=1.25, extra_mib=30.0),
        loss("peer", "wt2", median_ms=8.0),
        loss("broken", status="failed: out of memory"),
    ]
    write_benchmark(tmp_path, "mos_nll_h200.csv", rows)
    assert texts(tmp_path, "cost") == {"ours": ["2.50 / 1.25 ms, 30 MiB", "not run"], "peer": ["not run", "8.00 ms"]}


@pytest.mark.parametrize("kind", ["runs", "analysis"])
def test_an_unreadable_record_names_file_and_key(tmp_path, kind):
    write_results(tmp_path, {"a": run_record(stages=[{}])}, {"a": analysis(rank="full")})
    (tmp_path / ("runs" if kind == "analysis" else "analysis") / "a.json").unlink()
    with pytest.raises(UserError) as raised:
        build_report(tmp_path)
    assert str(tmp_path / kind / "a.json") in str(raised.value)
    assert ("models[0].rank" if kind == "analysis" else "stages[0]") in str(raised.value)


def test_numbers_that_the_paper_prints_twice_agree():
    assert paper.RANK["ptb-mos"].test == paper.COMPONENTS[15].rank
    assert get_recipe("ptb-mos").paper[0].test == paper.COMPONENTS[15].test
    assert paper.RANK["ptb-softmax"].test == get_recipe("ptb-softmax").model.embed_dim
    assert paper.RANK["ptb-moc"].test == get_recipe("ptb-moc").model.embed_dim
