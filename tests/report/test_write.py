"""Pages and documents: links resolve, text is escaped, tables are up to date."""

from pathlib import Path
from urllib.parse import unquote

import pytest

from highrank.errors import UserError
from highrank.report.build import build_report
from highrank.report.table import Cell, Column, Table
from highrank.report.write import fill_markers, update_document, write_report
from html_reader import HtmlReader
from result_files import analysis, run_record, write_results

ROOT = Path(__file__).parents[2]
MARK = "made by 'highrank report'"
DOCUMENTS = [path for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))] if MARK in path.read_text()]
HOSTILE = "<script>alert('x') [x](y) & \"ü\""  # the name of a file
MARKED = f"before\n<!-- x: {MARK} -->\nold\n<!-- end of x -->\nafter"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_the_tables_of_a_document_are_up_to_date(path):
    """If this fails, run: highrank report --results results --readme README.md --readme docs/results.md ..."""
    text = path.read_text()
    results = "results" if path.name == "README.md" else "../results"
    assert fill_markers(text, build_report(ROOT / "results").tables, results) == text


@pytest.fixture
def results(tmp_path):
    runs = {"a": run_record(valid=60.0), HOSTILE: run_record("wt2-mos", valid=61.0)}
    return write_results(tmp_path / "my results", runs, {"a": analysis()})


def test_a_page_contains_everything_and_its_links_resolve(tmp_path, results):
    files = write_report(build_report(results), tmp_path / "page")
    assert all(file.is_file() for file in files)
    page = HtmlReader(files[0].read_text())
    assert "script" not in page.tags
    assert len(page.images) == 2
    assert all(image.startswith("data:") for image in page.images)
    assert len(page.ids) == len(set(page.ids))
    records = [link for link in page.links if not link.startswith("#")]
    assert any("script" in link for link in records)
    for link in records:
        assert (tmp_path / "page" / unquote(link)).is_file(), link
    assert {link[1:] for link in set(page.links) - set(records)} <= set(page.ids)


def test_the_same_records_give_the_same_files(tmp_path, results):
    first = write_report(build_report(results), tmp_path / "first")
    second = write_report(build_report(results), tmp_path / "second")
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def test_tables_replace_the_text_between_their_markers():
    tables = {name: Table([Column("a")], [[Cell(f"new {name}")]]) for name in "xy"}
    once = fill_markers(MARKED, tables, "results")
    assert once.startswith("before\n")
    assert once.endswith("\nafter")
    assert ("old" in once, "new x" in once, "new y" in once) == (False, True, False)
    assert fill_markers(once, tables, "results") == once


@pytest.mark.parametrize(
    "text", [b"no markers", MARKED.replace("x:", "z:").encode(), MARKED.replace("end of x", "end").encode(), b"\xff"]
)
def test_a_document_with_wrong_markers_or_encoding_is_named_and_left_alone(tmp_path, text):
    document = tmp_path / "notes.md"
    document.write_bytes(text)
    with pytest.raises(UserError, match=r"notes\.md"):
        update_document(document, build_report(tmp_path))
    assert document.read_bytes() == text
