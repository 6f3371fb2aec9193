"""Pages and documents: links resolve, text is escaped, tables are up to date."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from highrank.errors import UserError
from highrank.report.build import build_report
from highrank.report.results import Section
from highrank.report.table import Cell, Column, Table
from highrank.report.write import fill_markers, update_document, write_report
from result_files import analysis, run_record, write_results

ROOT = Path(__file__).parents[2]
MARK = "made by 'highrank report'"
DOCUMENTS = [path for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))] if MARK in path.read_text()]
HOSTILE = "<script>alert('x')</script> [x](y) & \"ü\""
MARKED = "before\n<!-- x: made by 'highrank report' -->\nold\n<!-- end of x -->\nafter"


class Page(HTMLParser):
    """Collects the tags, ids, links and images of a page."""

    def __init__(self, path):
        super().__init__()
        self.tags = []
        self.ids = []
        self.links = []
        self.images = []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append(tag)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [attributes["href"]] if tag == "a" else []
        self.images += [attributes["src"]] if tag == "img" else []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_the_tables_of_a_document_are_up_to_date(path):
    """If this fails, run: highrank report --readme README.md --readme docs/results.md ..."""
    link = "results" if path.name == "README.md" else "../results"
    text = path.read_text()
    assert fill_markers(text, build_report(ROOT / "results").sections(link)) == text


@pytest.fixture
def results(tmp_path):
    name = HOSTILE.replace("/", "")  # of a file
    runs = {"a": run_record(valid=60.0), name: run_record("wt2-mos", valid=61.0)}
    runs["b"] = {**run_record("ptb-softmax", settings=["train.lr=15"]), "recipe": HOSTILE}
    return write_results(tmp_path / "my results", runs, {"a": analysis()})


def test_a_page_contains_everything_and_its_links_resolve(tmp_path, results):
    files = write_report(build_report(results), tmp_path / "page")
    assert all(file.is_file() for file in files)
    page = Page(files[0])
    assert len(page.images) == 2
    assert all(image.startswith("data:") for image in page.images)
    assert len(page.ids) == len(set(page.ids))
    records = [link for link in page.links if not link.startswith("#")]
    assert any("%20" in link for link in records)
    for link in records:
        assert (tmp_path / "page" / unquote(link)).is_file(), link
    for link in set(page.links) - set(records):
        assert link[1:] in page.ids


def test_hostile_names_do_not_become_markup(tmp_path, results):
    page, *_ = write_report(build_report(results), tmp_path / "page")
    assert "script" not in Page(page).tags


def test_the_same_records_give_the_same_files(tmp_path, results):
    first = write_report(build_report(results), tmp_path / "first")
    second = write_report(build_report(results), tmp_path / "second")
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def section(text):
    return Section("x", "X", Table([Column("a")], [[Cell(text)]]))


def test_tables_replace_the_text_between_their_markers():
    once = fill_markers(MARKED, {"x": section("new"), "y": section("unused")})
    assert once.startswith("before\n")
    assert once.endswith("\nafter")
    assert ("old" in once, "new" in once, "unused" in once) == (False, True, False)
    assert fill_markers(once, {"x": section("new")}) == once


@pytest.mark.parametrize(
    ("text", "name"),
    [("no markers", "results"), (MARKED.replace("x:", "z:"), "z"), (MARKED.replace("end of x", "end"), "x")],
)
def test_a_document_with_wrong_markers_is_left_alone(tmp_path, text, name):
    document = tmp_path / "notes.md"
    document.write_text(text)
    with pytest.raises(UserError, match=rf"notes\.md.*\b{name}\b"):
        update_document(document, build_report(tmp_path))
    assert document.read_text() == text
