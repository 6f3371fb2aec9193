"""`highrank report` on the records of one's own runs."""

import json

import pytest

from helpers import fails, highrank
from result_files import run_record, write_results

MARKERS = "<!-- ptb: made by 'highrank report' -->\n<!-- end of ptb -->\n"


def test_a_record_of_another_text_is_in_the_page_but_not_in_the_papers_cells(place, trained):
    highrank("record", "run", "--out", "results/runs/mine.json", cwd=place)
    done = highrank("report", "--out", "page", cwd=place)
    assert "page/report.html" in done.stdout
    assert "mine" in (place / "page" / "report.html").read_text()
    entries = json.loads(highrank("report", "--json", cwd=place).stdout)
    assert {entry["table"] for entry in entries} >= {
        "ptb",
        "wt2",
        "ten-minutes",
        "components",
        "ablation",
        "rank",
        "kld",
    }
    assert all(entry["ours"] is None for entry in entries)


def test_tables_are_renewed_in_several_documents(tmp_path):
    write_results(tmp_path / "results", {"a": run_record(valid=60.0)})
    documents = [tmp_path / "notes.md", tmp_path / "more.md"]
    for document in documents:
        document.write_text(MARKERS)
    highrank("report", "--readme", "notes.md", "--readme", "more.md", cwd=tmp_path)
    for document in documents:
        assert "60.00\u00a0/\u00a058.00" in document.read_text()
    highrank("report", "--readme", "notes.md", cwd=tmp_path)
    assert documents[0].read_text() == documents[1].read_text()


def test_without_options_every_table_is_printed(tmp_path):
    write_results(tmp_path / "results", {"a": run_record(valid=60.0)})
    assert "60.00\u00a0/\u00a058.00" in highrank("report", cwd=tmp_path).stdout


@pytest.mark.parametrize("option", ["--results", "--readme"])
def test_a_missing_folder_or_document_is_named(place, option):
    (place / "results").mkdir()
    assert "nowhere" in fails("report", option, "nowhere", cwd=place)
