"""`highrank report` on the records of one's own runs."""

import json

import pytest

from helpers import fails, highrank
from html_reader import HtmlReader
from result_files import run_record, write_results

MARKERS = "<!-- ptb: made by 'highrank report' -->\n<!-- end of ptb -->\n"
NUMBERS = "60.00\u00a0/\u00a058.00"


def test_a_record_of_another_text_is_not_in_the_papers_cells(place, trained):
    highrank("record", "run", cwd=place)
    assert "page/report.html" in highrank("report", "--out", "page", cwd=place).stdout
    entries = json.loads(highrank("report", "--json", cwd=place).stdout)
    assert {entry["table"] for entry in entries} >= {"ptb", "ten-minutes", "components", "ablation", "rank", "kld"}
    assert all(entry["ours"] is None for entry in entries)


def test_runs_come_first_and_empty_tables_are_left_out(place, trained):
    highrank("record", "run", cwd=place)
    printed = highrank("report", cwd=place).stdout
    assert [line for line in printed.splitlines() if line.startswith("## ")] == ["## runs"]
    assert "| `run` | `ptb-mos` | toy |" in printed
    assert str(place) not in printed
    assert "not run" not in printed
    highrank("report", "--out", "page", cwd=place)
    page = HtmlReader((place / "page" / "report.html").read_text())
    assert page.ids == ["runs"]


@pytest.mark.parametrize("folder", ["records", "empty"])
def test_without_records_the_next_command_is_named(place, folder):
    (place / "empty").mkdir()
    assert "highrank record" in fails("report", "--results", folder, cwd=place)


def test_tables_are_renewed_in_several_documents(tmp_path):
    write_results(tmp_path / "records", {"a": run_record(valid=60.0)})
    documents = [tmp_path / "notes.md", tmp_path / "more.md"]
    for document in documents:
        document.write_text(MARKERS)
    highrank("report", "--readme", "notes.md", "--readme", "more.md", cwd=tmp_path)
    for document in documents:
        assert NUMBERS in document.read_text()


def test_without_options_the_tables_are_printed(tmp_path):
    write_results(tmp_path / "records", {"a": run_record(valid=60.0)})
    assert NUMBERS in highrank("report", cwd=tmp_path).stdout


@pytest.mark.parametrize("option", ["--results", "--readme"])
def test_a_missing_folder_or_document_is_named(place, option):
    (place / "records").mkdir()
    assert "nowhere" in fails("report", option, "nowhere", cwd=place)
