"""`highrank report` on the records of one's own runs."""

import json

import pytest

from helpers import fails, highrank
from result_files import run_record, write_results

MARKERS = "<!-- ptb: made by 'highrank report' -->\n<!-- end of ptb -->\n"
NUMBERS = "60.00\u00a0/\u00a058.00"


def test_a_record_of_another_text_is_not_in_the_papers_cells(place, trained):
    highrank("record", "run", "--out", "results/runs/mine.json", cwd=place)
    assert "page/report.html" in highrank("report", "--out", "page", cwd=place).stdout
    entries = json.loads(highrank("report", "--json", cwd=place).stdout)
    assert {entry["table"] for entry in entries} >= {"ptb", "ten-minutes", "components", "ablation", "rank", "kld"}
    assert all(entry["ours"] is None for entry in entries)


def test_tables_are_renewed_in_several_documents(tmp_path):
    write_results(tmp_path / "results", {"a": run_record(valid=60.0)})
    documents = [tmp_path / "notes.md", tmp_path / "more.md"]
    for document in documents:
        document.write_text(MARKERS)
    highrank("report", "--readme", "notes.md", "--readme", "more.md", cwd=tmp_path)
    for document in documents:
        assert NUMBERS in document.read_text()


def test_without_options_every_table_is_printed(tmp_path):
    write_results(tmp_path / "results", {"a": run_record(valid=60.0)})
    assert NUMBERS in highrank("report", cwd=tmp_path).stdout


@pytest.mark.parametrize("option", ["--results", "--readme"])
def test_a_missing_folder_or_document_is_named(place, option):
    (place / "results").mkdir()
    assert "nowhere" in fails("report", option, "nowhere", cwd=place)
