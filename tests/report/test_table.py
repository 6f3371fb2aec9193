"""Tables render to Markdown and HTML, and text never becomes markup."""

import pytest

from highrank.report.page import render
from highrank.report.table import Cell, Column, Table, keep_together, to_markdown
from html_reader import HtmlReader

HOSTILE = "<script>alert(1)</script> | [x](y) `*_"


def to_html(table):
    return HtmlReader(render("report.html", tables={"headline": table}, results="results", images={}))


def test_markdown_shows_alignment_links_code_and_caption():
    row = [Cell(", finetuned", code="ptb-mos"), Cell("57.05", record="runs/a b.json")]
    table = Table([Column("recipe", "left"), Column("test")], [row], "A caption.")
    assert to_markdown(table, "../results").splitlines() == [
        "A caption.",
        "",
        "| recipe | test |",
        "| --- | ---: |",
        "| `ptb-mos`, finetuned | [**57.05**](../results/runs/a%20b.json) |",
    ]


def test_html_has_the_same_cells_as_the_table():
    rows = [[Cell(", finetuned", code="ptb-mos"), Cell("57.05", record="runs/a b.json")], [Cell("moc"), Cell()]]
    page = to_html(Table([Column("recipe", "left"), Column("test")], rows))
    assert page.rows == [["recipe", "test"], ["ptb-mos, finetuned", "57.05"], ["moc", ""]]
    assert "results/runs/a%20b.json" in page.links


@pytest.mark.parametrize("cell", [Cell(HOSTILE, record=HOSTILE), Cell(code=HOSTILE)])
def test_html_never_turns_text_into_markup(cell):
    page = to_html(Table([Column(HOSTILE)], [[cell]]))
    assert "script" not in page.tags
    assert page.rows == [[HOSTILE], [HOSTILE]]


@pytest.mark.parametrize("cell", [Cell(HOSTILE), Cell(code=HOSTILE)])
def test_markdown_never_turns_text_into_markup(cell):
    *_, row = to_markdown(Table([Column("a"), Column("b")], [[cell, cell]])).splitlines()
    for character in "<|[`*_":
        assert row.count(character) - row.count(f"\\{character}") == (3 if character == "|" else 0)


def test_text_that_is_kept_together_has_no_space_to_break_at():
    assert " " not in keep_together("58.08 / 55.97")
