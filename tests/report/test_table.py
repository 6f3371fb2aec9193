"""Tables render to Markdown and HTML, and text never becomes markup."""

from html.parser import HTMLParser

import pytest

from highrank.report.page import environment, render
from highrank.report.table import Cell, Code, Column, Table, keep_together, text_to_markdown, to_markdown

HOSTILE = "<script>alert(1)</script> | [x](y) `*_"


class Reader(HTMLParser):
    """Collects the tags, links and cell texts of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.links = []
        self.rows = []
        self.in_cell = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag == "a":
            self.links.append(dict(attributes)["href"])
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.in_cell = True

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.in_cell = False

    def handle_data(self, data):
        if self.in_cell:
            self.rows[-1][-1] += data


def to_html(table):
    return environment().from_string('{% from "table.html" import table %}{{ table(value) }}').render(value=table)


def test_markdown_shows_alignment_emphasis_links_and_code():
    table = Table(
        [Column("recipe", "left"), Column("test")],
        [[Cell((Code("ptb-mos"), ", finetuned")), Cell("57.05", link="runs/a b.json", strong=True)]],
    )
    assert to_markdown(table).splitlines() == [
        "| recipe | test |",
        "| --- | ---: |",
        "| `ptb-mos`, finetuned | [**57.05**](runs/a%20b.json) |",
    ]


def test_html_has_the_same_cells_as_the_table():
    rows = [[Cell((Code("ptb-mos"), ", finetuned")), Cell("57.05", link="runs/a b.json")], [Cell("moc"), Cell()]]
    page = Reader(to_html(Table([Column("recipe", "left"), Column("test")], rows)))
    assert page.rows == [["recipe", "test"], ["ptb-mos, finetuned", "57.05"], ["moc", ""]]
    assert page.links == ["runs/a%20b.json"]
    assert page.tags.count("code") == 1


@pytest.mark.parametrize("text", [HOSTILE, Code(HOSTILE)])
def test_html_never_turns_text_into_markup(text):
    table = Table([Column(HOSTILE)], [[Cell(text, link=f"runs/{HOSTILE}", style='"><script>')]])
    page = Reader(to_html(table))
    assert "script" not in page.tags
    assert page.rows == [[HOSTILE], [HOSTILE]]


@pytest.mark.parametrize("text", [HOSTILE, Code(HOSTILE)])
def test_markdown_never_turns_text_into_markup(text):
    *_, row = to_markdown(Table([Column("a"), Column("b")], [[Cell(text), Cell(text)]])).splitlines()
    for character in "<|[`*_":
        assert row.count(character) - row.count(f"\\{character}") == (3 if character == "|" else 0)


def test_text_that_is_kept_together_has_no_space_to_break_at():
    assert keep_together("58.08 / 55.97").split(" ") == [keep_together("58.08 / 55.97")]


def test_a_title_is_escaped_in_the_frame_of_a_page():
    assert "script" not in Reader(render("base.html", title=HOSTILE)).tags


def test_code_in_prose_is_marked():
    assert text_to_markdown(("Runs of ", Code("ptb-mos"), " only")) == "Runs of `ptb-mos` only"
