"""Tables with a training score: text8 in bits per character, One Billion Word in perplexity."""

from highrank.report.build import build_report
from highrank.report.figures.curves import learning_curves
from highrank.report.records import load_runs
from result_files import run_record, write_results

CURVE = {"epoch": [1, 2, 3], "seconds": [1.0, 2.0, 3.0], "train_ppl": [16.0, 8.0, 4.0], "valid_ppl": [9.0, 8.0, 9.0]}


def characters(results):
    """Return the numbers of the table by recipe, column and part."""
    entries = [entry for entry in build_report(results).entries if entry["table"] == "characters"]
    return {(entry["row"].split(",")[0], entry["column"], entry["part"]): entry for entry in entries}


def write_record(folder):
    record = run_record(
        "text8-mos7", valid=8.0, test_ppl=16.0, best_epoch=2, parameters=8_448_517, curve=CURVE,
        corpus_extent="prefix of 12 characters",
    )  # fmt: skip
    return write_results(folder, {"mos7": record})


def test_records_are_shown_in_bits_beside_the_papers(tmp_path):
    entries = characters(write_record(tmp_path))
    ours = {part: entries["text8-mos7", "train / valid / test", part] for part in ("train", "valid", "test")}
    assert {part: entry["ours"] for part, entry in ours.items()} == {"train": 3.0, "valid": 3.0, "test": 4.0}
    assert {part: entry["paper"] for part, entry in ours.items()} == {"train": 1.35, "valid": 1.40, "test": 1.49}
    assert entries["text8-mos7", "parameters", None]["ours"] == 8.448517


def test_the_row_says_how_much_text_was_used(tmp_path):
    assert "prefix of 12 characters" in characters(write_record(tmp_path))["text8-mos7", "parameters", None]["about"]


def test_every_row_is_there_without_records(tmp_path):
    entries = characters(tmp_path)
    assert len({row for row, _, _ in entries}) == 5
    assert all(entry["ours"] is None for entry in entries.values())


def test_learning_curves_are_in_bits(tmp_path):
    figure = learning_curves("text8", load_runs(write_record(tmp_path)))
    assert list(figure.axes[0].lines[0].get_ydata())[1] == 3.0


def test_a_record_of_one_billion_word_is_shown_beside_the_papers(tmp_path):
    record = run_record("1b-mos", valid=8.0, test_ppl=7.5, best_epoch=2, parameters=112_850_364, curve=CURVE)
    entries = [e for e in build_report(write_results(tmp_path, {"a": record})).entries if e["table"] == "billion"]
    mos = {e["part"]: (e["paper"], e["ours"]) for e in entries if e["row"] == "1b-mos"}
    assert mos == {"train": (36.39, 8.0), "valid": (38.01, 8.0), "test": (37.10, 7.5), None: (113, 112.850364)}
    assert all(e["ours"] is None for e in entries if e["row"] == "1b-softmax")


def test_a_run_on_another_text_is_not_a_result_of_one_billion_word(tmp_path):
    record = run_record("1b-mos", ["data.corpus=two-shards"])
    entries = build_report(write_results(tmp_path, {"a": record})).entries
    assert all(e["ours"] is None for e in entries if e["table"] == "billion")
