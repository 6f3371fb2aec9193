"""The commands around a dialog run: train, resume, evaluate, record, report and data."""

import json

import pytest

from helpers import dialog_settings, fails, highrank, write_toy_dialogs
from highrank.recipes import get_recipe


def test_evaluate_prints_perplexity_and_bleu(trained_dialog):
    place = trained_dialog.parent
    row = json.loads(highrank("evaluate", "talk", "--json", cwd=place).stdout)
    assert row["split"] == "test"
    assert row["perplexity"] > 1
    assert len(row["precision"]) == len(row["recall"]) == 4
    assert row["decoding"]["max_length"] == 6
    assert "BLEU" in highrank("evaluate", "talk", "--split", "valid", cwd=place).stdout


def test_a_record_fills_the_table_of_the_report(trained_dialog):
    place = trained_dialog.parent
    highrank("record", "talk", cwd=place)
    record = json.loads((place / "records" / "runs" / "talk.json").read_text())
    assert record["dialog"]["contexts"] == 21
    # Only runs of the recipe's own model count, so give the record its settings.
    record["settings"] = get_recipe("swda-mos").resolved()
    (place / "records" / "runs" / "talk.json").write_text(json.dumps(record))
    entries = json.loads(highrank("report", "--json", cwd=place).stdout)
    ours = {(e["row"], e["column"], e["part"]): e for e in entries if e["table"] == "dialog"}
    cell = ours["swda-mos", "BLEU-2 precision / recall", "recall"]
    assert (cell["paper"], cell["ours"]) == (0.166, record["dialog"]["recall"][1])
    assert ours["swda-mos", "perplexity", None]["ours"] == record["test_ppl"]
    assert ours["swda-moc", "perplexity", None]["ours"] is None


def test_a_run_resumes_only_with_its_own_settings(trained_dialog):
    place = trained_dialog.parent
    highrank("train", "swda-mos", "--out", "talk", "--resume", cwd=place)
    changes = ["--out", "talk", "--resume", "--set", "data.context_size=2"]
    assert "data.context_size" in fails("train", "swda-mos", *changes, cwd=place)


@pytest.mark.parametrize(
    "options", ["evaluate --dynamic", "evaluate --tune-tokens 5", "evaluate --lr 1", "record --cache"]
)
def test_options_for_language_models_are_errors(trained_dialog, options):
    command, *rest = options.split()
    assert "dialog" in fails(command, "talk", *rest, cwd=trained_dialog.parent)


def test_a_broken_line_is_named(tmp_path):
    folder = write_toy_dialogs(tmp_path / "dialogs")
    with open(folder / "valid.jsonl", "a") as file:
        file.write('{"utts": [["A", "hello"]\n')
    error = fails("train", "swda-mos", *dialog_settings(), cwd=tmp_path)
    assert "valid.jsonl, line 4" in error


def test_dialogs_of_the_catalog_are_listed_and_verified(tmp_path):
    write_toy_dialogs(tmp_path / "switchboard")
    rows = json.loads(highrank("data", "list", "--data-dir", tmp_path, "--json", cwd=tmp_path).stdout)
    folders = {row["name"]: row["folder"] for row in rows}
    assert folders["switchboard"] == str(tmp_path / "switchboard")
    assert folders["penn"] is None
    output = highrank("data", "verify", "switchboard", "--data-dir", tmp_path, cwd=tmp_path).stdout
    assert "train 80" in output


def test_a_corpus_of_the_other_kind_is_an_error(tmp_path):
    write_toy_dialogs(tmp_path / "dialogs")
    assert "switchboard" in fails("train", "ptb-mos", "--set", "data.corpus=switchboard", cwd=tmp_path)
    assert "train.jsonl" in fails("train", "swda-mos", "--set", "data.corpus=penn", cwd=tmp_path)
