"""The report's page from tables made by hand: every cell under its heading, every number with where it comes from."""

import re
from html.parser import HTMLParser

import pytest

from highrank.plotting import HEADS
from highrank.report.report_page import inline, page
from highrank.report.results import Cell, Column, Origin, Row, Table

BOTH, ALONE = Column("valid / test", ("valid", "test")), Column("time", unit=" s", paper=False, digits=0)
ORIGIN = Origin("runs/a&b.json", "0123456789abcdef", "H200", seed=0, epochs=3, seconds=90.0, about="with train.lr=15")
ROWS = [
    Row("`mos`", (Cell((60.0, 58.0), (59.5, 57.5), ORIGIN), Cell(ours=(9.0,), origin=ORIGIN)), "why <i>"),
    Row("moc", (Cell((61.0, 59.0), (62.0, 57.0), ORIGIN), Cell(applies=False)), ""),
    Row("softmax", (Cell((63.0, 61.0)), Cell(ours=(7.0,)))),
]


class Grid(HTMLParser):
    """The texts of a page's tables by row and column, with the cells that span several repeated."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.cell = [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag == "table":
            self.tables.append([])
            self.below = {}
        elif tag == "tr":
            self.tables[-1].append([])
            self._fill()
        elif tag in ("td", "th"):
            self.cell = ["", int(attrs.get("colspan", 1)), int(attrs.get("rowspan", 1))]

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            text, columns, rows = self.cell
            for _ in range(columns):
                row = self.tables[-1][-1]
                for further in range(1, rows):
                    self.below[len(self.tables[-1]) - 1 + further, len(row)] = text
                row.append(text)
            self.cell = None
            self._fill()

    def _fill(self):
        table = self.tables[-1]
        while (len(table) - 1, len(table[-1])) in self.below:
            table[-1].append(self.below[len(table) - 1, len(table[-1])])

    def handle_data(self, data):
        if self.cell:
            self.cell[0] += data


def made(columns=(BOTH, ALONE), rows=ROWS, costs="", pictures=None, runs=(), cards=(), lists=None, **changes):
    table = Table("ptb", "Penn <b>", "About `it`.", "model", columns, rows, "remarks", (1, 3))
    tables = [Table(**{**vars(table), **changes})]
    pictures, lists = pictures or {}, lists or {"Not run": ["x"]}
    return page("A & B", "lead", list(cards), tables, costs, pictures, lists, list(runs), "../results")


def test_every_cell_stands_under_its_heading():
    (grid,) = Grid(made()).tables
    assert grid == [
        ["model", "valid / test", "valid / test", "time", "remarks"],
        ["model", "paper", "ours", "time", "remarks"],
        ["mos", "60.00 / 58.00", "59.50 / 57.50", "9 s", "why <i>"],
        ["moc", "61.00 / 59.00", "62.00 / 57.00", "-", ""],
        ["softmax", "63.00 / 61.00", "not run", "7 s", ""],
    ]


def test_a_table_that_the_paper_has_not_has_one_line_of_headings():
    rows = [Row(row.label, row.cells[1:]) for row in ROWS]
    (grid,) = Grid(made((ALONE,), rows, about_column="", tables=())).tables
    assert grid == [["model", "time"], ["mos", "9 s"], ["moc", "-"], ["softmax", "7 s"]]


def test_our_numbers_say_where_they_come_from():
    text = made()
    assert "About <code>it</code>. The paper&#x27;s table 1 and table 3." in text
    link = (
        '<a href="../results/runs/a&amp;b.json" title="3 epochs, 1.5 min of one H200; with train.lr=15; seed 0; '
        'commit 0123456789">'
    )
    assert f'<td class="ours good">{link}59.50 / 57.50</a>' in text
    assert f'<td class="ours">{link}62.00 / 57.00</a>' in text  # better on test alone is not as good
    assert "<td class=none>not run</td>" in text
    assert "<td class=none>7 s</td>" in text  # of unknown origin


def test_words_are_words_and_code_is_code():
    text = made(cards=[("57.5", "test & more", "paper 58")])
    assert "<title>A &amp; B</title>" in text
    assert '<h2 id="ptb">Penn &lt;b&gt;</h2>' in text
    assert "<th scope=row><code>mos</code></th>" in text
    assert "<div class=card><span>test &amp; more</span><b>57.5</b><span>paper 58</span></div>" in text


SVG = """<?xml version="1.0"?><!DOCTYPE svg>
<svg height="216pt" width="{width}pt"><metadata>
made by</metadata><defs><path id="m1"/></defs><g id="g"><use href="#m1" clip-path="url(#m1)"/>
<text style="font: 10px 'DejaVu Sans', sans-serif; fill: {colour}">a</text>
<path stroke="#000000" fill="#ffffff"/></g></svg>
"""


@pytest.mark.parametrize(("width", "wide"), [(400, False), (800.5, True)])
def test_pictures_become_part_of_the_page(width, wide):
    svg = SVG.format(width=width, colour=HEADS["mos"].lower())
    text = made(pictures={"one": ("First.", svg), "two": ("Second.", svg)})
    assert '<a href="#curves">' in text
    assert '<a href="#curves">' not in made()
    assert text.count("<?xml") == text.count("<!DOCTYPE") == text.count("made by") == 0
    assert f'<figure id="figure-one"{" class=wide" if wide else ""}>' in text
    assert '<svg role="img" aria-labelledby="figure-one-caption" height' in text
    assert '<figcaption id="figure-one-caption">First.</figcaption>' in text
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert {"one-m1", "two-m1"} <= set(ids)
    for name in ("one", "two"):
        assert f'href="#{name}-m1" clip-path="url(#{name}-m1)"' in text


def test_a_table_and_a_picture_may_share_a_name():
    text = made(name="one", pictures={"one": ("First.", SVG.format(width=400, colour="red"))})
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert '<h2 id="one">' in text
    assert len(ids) == len(set(ids))


def test_pictures_take_the_pages_font_and_colours():
    text = inline("one", SVG.format(width=400, colour=HEADS["mos"].lower()))
    assert "font-size: 10px; font-family: inherit; fill: var(--mos)" in text
    assert 'stroke="currentColor" fill="var(--paper)"' in text
    assert inline("one", "<svg><path stroke='#cccccc'/></svg>") == "<svg><path stroke='var(--line)'/></svg>"  # a frame


def test_every_link_within_the_page_leads_somewhere():
    text = made(lists={"Not run": ["x & y"], "Read this": ["z"]})
    anchors = re.findall(r'\bid="([^"]+)"', text)
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(anchors)
    assert "read-this" in anchors
    assert "<li>x &amp; y</li>" in text


def test_every_heading_of_a_table_says_of_what_and_every_tag_is_closed():
    text = made(costs="| what | ms |\n|---|---|\n| a | 1.5 |\n", runs=[{"run": "a", "what": "x", "path": "a.json"}],
                cards=[("1", "2", "3")], pictures={"one": ("First.", SVG.format(width=400, colour="red"))})  # fmt: skip
    tags = Tags(text)
    assert {scope for tag, scope in tags.seen if tag == "th"} == {"col", "colgroup", "row"}
    assert tags.open == []


class Tags(HTMLParser):
    """Every tag with its scope; those that are not closed in order stay open."""

    def __init__(self, text):
        super().__init__()
        self.seen, self.open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs).get("scope")))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, None))

    def handle_endtag(self, tag):
        if self.open[-1:] == [tag]:
            self.open.pop()


def test_costs_are_paragraphs_and_tables():
    text = made((ALONE,), [], costs="Some `words` & more.\n\n| what | ms |\n|---|---|\n| <a> | 1.5 |\n| b | 2 |\n")
    assert "<p>Some <code>words</code> &amp; more.</p>" in text
    assert [["what", "ms"], ["<a>", "1.5"], ["b", "2"]] in Grid(text).tables


def test_every_run_is_a_line():
    assert "<p>None yet.</p>" in made()
    runs = [{"run": "a", "what": "<x>", "path": "runs/a.json", "test": "57.5"}]
    text = made(runs=runs)
    assert Grid(text).tables[-1] == [["run", "what", "test"], ["a", "<x>", "57.5"]]
    assert '<a href="../results/runs/a.json">a</a>' in text
