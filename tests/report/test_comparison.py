"""A comparison on paper: the page needs nothing else, odd words stay words, and every form tells the same numbers."""

import dataclasses
import itertools
import json
import re
from html.parser import HTMLParser

import pytest
import torch

from highrank.analysis.bands import Group
from highrank.analysis.compare import Comparison, Side, Step, compare
from highrank.analysis.paper_cases import PAPER_CASES
from highrank.analysis.prediction import Candidate, Component, Prediction
from highrank.data.corpus import EOS, Corpus, tokenize
from highrank.models import build_model
from highrank.recipes import ModelSpec
from highrank.report.comparison import as_json, write
from highrank.report.comparison.markdown import markdown
from highrank.report.comparison.page import page
from highrank.report.comparison.words import (
    MOST_PREVIOUS,
    groupings,
    previous_rows,
    probability,
    reading_notes,
    speaking,
    summary,
)
from highrank.report.figures.comparison import AHEAD, BEHIND, _panel

ODD = ["<b>", "a|b", "`", "*", "&amp;", "[x](y)", "$", "_", "'", '"', "</mark>", "é"]


def comparison(name="toy", level="word", heads=("mos", "moc"), text=None):
    generator = torch.Generator().manual_seed(0)
    text = text or [ODD[i] if i < len(ODD) else EOS for i in torch.randint(14, (900,), generator=generator)] + [EOS]
    words, splits = tokenize({"train": text[:300], "valid": text, "test": text})
    corpus = Corpus(name, level, words, splits, "x")
    torch.manual_seed(1)
    models = [
        build_model(ModelSpec(head=head, embed_dim=6, hidden_sizes=(6,), n_components=6), len(words)).eval()
        for head in heads
    ]
    for p in (p for m in models for p in m.parameters()):
        p.data.mul_(6)
    return compare(*models, corpus, n=3, names=("one_<i>", "two"))


@pytest.fixture(scope="module")
def found():
    return comparison()


def by_hand(**changes):
    """One step each way, every number another."""
    one = Prediction(0.5, 0.6, 1, [Candidate("came", 0.6), Candidate("other", 0.3)], [])
    two = Prediction(2.5, 0.08, 7, [Candidate("guess", 0.7), Candidate("other", 0.2)], [])
    ahead = Step(1234, ["so", "far"], "came", ["rest"], 2.0, one, two)
    behind = Step(77, ["then"], "came", [], -2.0, two, one)
    up, down = Group("1 to 9", 40, 5.125, 5.375, 0.25, 0.05), Group("10 to 99", 60, 4.5, 4.25, -0.25, None)
    sides = Side("one", "mos", 3, 5000, 4.75), Side("two", "softmax", 1, 6000, 4.70)
    overall = Group("all", 100, 4.75, 4.70, -0.05, 0.01)
    made = Comparison(
        "toy", "word", "test", None, 1, 200, *sides, overall, 30, [ahead], [behind], [up, down], [], [], None
    )
    return dataclasses.replace(made, **changes)


def test_every_number_stands_on_its_own_side():
    lines = markdown(by_hand()).splitlines()
    assert "| A | one (MoS of 3, 5,000 parameters) | 115.58 | 4.7500 |" in lines
    assert "| B | two (Softmax, 6,000 parameters) | 109.95 | 4.7000 |" in lines
    assert "| 1 to 9 | 40 | 5.125 | 5.375 | +0.2500 ± 0.0500 |" in lines
    assert "| 10 to 99 | 60 | 4.500 | 4.250 | -0.2500 |" in lines
    start, end = (lines.index(f"## Where {name} is furthest ahead") for name in ("one", "two"))
    assert lines[start + 2] == "### 1. +2.00 nats: `came`"
    assert lines[start + 4 : start + 7 : 2] == ["> … so far **came** rest", "Token 1,234."]
    assert "| one | `came` 0.60, `other` 0.30 | 0.60, rank 1 |" in lines[start:end]
    assert "| two | `guess` 0.70, `other` 0.20 | 0.08, rank 7 |" in lines[start:end]
    html = page(by_hand())
    assert "<th scope=row>1 to 9<td class=n>40<td class=n>5.125<td class=n>5.375<td class=n>+0.2500 ± 0.0500" in html
    cards = re.findall("<div class='card side ([ab])'><div class=name>(.*?)</div>.*?<div class=big>(.*?)</div>", html)
    assert cards == [("a", "one", "115.58"), ("b", "two", "109.95")]
    for key, name in (("ahead", "one"), ("behind", "two")):
        assert f"<h2 id={key}>Where {name} is furthest ahead</h2>" in html
    first, second = re.findall("<article.*?</article>", html, flags=re.S)
    assert "<span class='gain a'>+2.00 nats</span><span class=soft>one is ahead; token 1,234" in first
    assert "<span class='gain b'>-2.00 nats</span><span class=soft>two is ahead; token 77" in second
    for article, came, guess in ((first, "in-a", "in-b"), (second, "in-b", "in-a")):
        parts = dict(re.findall(r"<div class=(in-[ab])>(.*?)</ol>", article, flags=re.S))
        assert "<li class=came><span class=bar style='width:60.0%'></span><span>came" in parts[came]
        assert "below" not in parts[came]
        assert "<li class='came below'><span>came</span><span>0.08, rank 7</span>" in parts[guess]


def test_the_whole_in_two_sentences():
    told = "two gains 0.0500 ± 0.0100 nats a token on one. one gives the word that came the higher probability at 30.0%"
    assert summary(by_hand()) == f"Over the 200 steps of test, {told} of them."
    assert summary(by_hand(contains="far")).startswith('Over the 100 steps of test with "far" in their context, two')
    better = dataclasses.replace(by_hand().overall, gain=0.05)
    assert "one gains 0.0500 ± 0.0100 nats a token on two" in summary(by_hand(overall=better))
    assert not any("columns" in note for note in reading_notes(by_hand()))
    assert any("read in 4 columns" in note for note in reading_notes(by_hand(columns=4)))


def test_intervals_are_two_standard_errors_each_way():
    """On the page the scale runs from the lowest end to the highest, over 208 of 220 units."""
    (svg,) = re.findall("<th scope=row>1 to 9.*?<svg.*?>(.*?)</svg>", page(by_hand()))
    numbers = [float(x) for x in re.findall(r"(?:x1|x2|cx)=([\d.]+)", svg)]
    low, high = -0.25, 0.35
    x = [round(6 + 208 * (value - low) / (high - low), 1) for value in (0, 0, 0.15, 0.35, 0.25)]
    assert numbers == x
    assert "var(--a)" in svg
    (below,) = re.findall("<th scope=row>10 to 99.*?<svg.*?>(.*?)</svg>", page(by_hand()))
    assert "var(--a)" not in below
    assert "var(--b)" in below
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots()
    _panel(axis, groupings(by_hand())[0])
    (up, _, (reach,)), (down, _, _) = axis.containers
    assert [float(x) for x in reach.get_segments()[0][:, 0]] == pytest.approx([0.15, 0.35])
    assert [(bar.get_color(), bar.get_marker()) for bar in (up, down)] == [AHEAD, BEHIND]
    assert axis.get_ylim() == (1.6, -0.6)  # the first on top, room above and below
    plt.close(figure)


@pytest.mark.parametrize(("gain", "zero"), [(0.25, 6.0), (-0.25, 214.0), (0.0, 6.0)])
def test_zero_is_always_on_the_scale(gain, zero):
    made = by_hand(by_frequency=[Group("1 to 9", 40, 5.0, 5.0, gain, None)])
    (svg,) = re.findall("<th scope=row>1 to 9.*?<svg.*?>(.*?)</svg>", page(made))
    assert float(re.findall(r"x1=([\d.]+)", svg)[0]) == zero


def test_a_run_that_is_nowhere_ahead():
    assert page(by_hand()).count("Nowhere.") == 0
    assert page(by_hand(a_ahead=[])).count("Nowhere.") == 1


@pytest.mark.parametrize("share", [0.75, None])
@pytest.mark.parametrize("count", [3, 4])
def test_components_are_listed_by_weight(share, count):
    """With their share of the word that came where there is one: MoC's components give none."""
    words = [Candidate("came", 0.6), Candidate("other", 0.3)]
    parts = [Component(7 - k, 0.4 - k / 10, 0.6, share, words) for k in range(count)]
    step = by_hand().a_ahead[0]
    html = page(
        by_hand(a_ahead=[dataclasses.replace(step, a=dataclasses.replace(step.a, components=parts))], b_ahead=[])
    )
    more = ", …" if count > 3 else ""
    assert f"<summary>Components by weight: 7 (0.40), 6 (0.30), 5 (0.20){more}</summary>" in html
    assert ("<th scope=col class=n>share" in html) == (share is not None)
    assert ("<th scope=row>7<td class=n>0.40<td class=n>0.75<td>" in html) == (share is not None)
    assert ("what it would say alone" in html) == (share is None)
    assert "<b>came</b> <span class=soft>0.60" in html
    assert "<b>other</b>" not in html


def test_previous_words_are_the_extremes_of_both_ends():
    groups = [Group(f"w{i}", 50, 1.0, 1.0, gain, 0.1) for i, gain in enumerate(range(13, -13, -1))]
    shown = previous_rows(by_hand(by_previous=groups))
    assert [g.gain for g in shown] == [*range(13, 13 - MOST_PREVIOUS, -1), *range(-13 + MOST_PREVIOUS, -13, -1)]


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def test_the_page_stands_alone(found):
    text = page(found)
    assert not re.search(r"https?:|<script|<link|<img|@import|url\(", text)
    assert "prefers-color-scheme: dark" in text
    parsed = Page(text)
    ids = {attrs["id"] for _, attrs in parsed.tags if "id" in attrs}
    links = {attrs["href"] for tag, attrs in parsed.tags if tag == "a"}
    assert links == {f"#{key}" for key in ids}


def test_the_page_can_be_heard(found):
    """Headings go down by one at a time, a step has one of its own, and every heading of a table says of what."""
    tags = Page(page(found)).tags
    levels = [int(tag[1]) for tag, _ in tags if tag in ("h1", "h2", "h3")]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    articles = [i for i, (tag, _) in enumerate(tags) if tag == "article"]
    assert articles
    assert all("h3" in [tag for tag, _ in tags[i : i + 3]] for i in articles)
    heads = [attrs.get("scope") for tag, attrs in tags if tag == "th"]
    assert set(heads) == {"col", "row"}


def test_words_stay_words_on_the_page(found):
    parsed = Page(page(found))
    allowed = {
        "html", "meta", "title", "style", "main", "h1", "h2", "h3", "p", "span", "nav", "a", "div", "ul", "li", "table",
        "thead", "tbody", "tr", "th", "td", "svg", "line", "circle", "article", "header", "b", "blockquote", "mark",
        "ol", "details", "summary",
    }  # fmt: skip
    assert {tag for tag, _ in parsed.tags} <= allowed
    assert not any(tag == "i" for tag, _ in parsed.tags)  # of the run's name
    assert sum(tag == "mark" for tag, _ in parsed.tags) == len(found.a_ahead) + len(found.b_ahead) == 6
    for step in (*found.a_ahead, *found.b_ahead):
        assert " ".join(step.context) in parsed.text


def test_both_forms_tell_the_numbers(found):
    plain = Page(page(found)).text
    marked = markdown(found).replace("\\", "")
    for text in (plain, marked):
        assert summary(found) in text
        for side in (found.a, found.b):
            assert f"{side.perplexity:.2f}" in text
        for group in (*found.by_frequency, *found.by_pair, *previous_rows(found)):
            assert f"{group.gain:+.4f} ± {group.gain_se:.4f}" in text
        assert "geometric mean" in text  # MoC's components
        assert re.search(r"(2 more have|1 more has) \S+ of the weight", text)  # components beyond those shown


def test_markdown_tables_keep_their_columns(found):
    for block in re.findall(r"(?:^\|.*\n)+", markdown(found), flags=re.M):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.strip().splitlines()}
        assert len(widths) == 1, block


def test_all_files_are_written(tmp_path, found):
    files = write(found, tmp_path / "out", {"runs": ["a", "b"]})
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(f.name for f in files)
    data = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert data == json.loads(json.dumps(as_json(found) | {"runs": ["a", "b"]}))
    assert data["a"]["perplexity"] == pytest.approx(found.a.perplexity)
    assert data["a_ahead"][0]["a"]["components"][0]["weight"] == found.a_ahead[0].a.components[0].weight
    assert "(comparison.png)" in (tmp_path / "out" / "comparison.md").read_text()
    assert (tmp_path / "out" / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "out" / "comparison.svg").read_text()


def test_the_papers_cases_are_shown_or_said_to_be_missing():
    case = PAPER_CASES[0]
    found = comparison("penn", heads=("mos", "softmax"), text=[*case.key.split(), case.reference, "x", EOS] * 30)
    for text in (Page(page(found)).text, markdown(found).replace("\\", "")):
        assert "Case 1" in text
        assert "MoS said million 0.38, tons 0.24" in text
        assert "MoC said billion 0.39, million 0.36" in text
        assert len(re.findall("not in this text|Not found in this text", text)) == 5
        assert "geometric mean" not in text  # no MoC here
    assert '<a href="#paper">' in page(found)
    assert "MoS said million 0.38, <b>tons 0.24</b>, billion 0.09" in page(found)


def test_characters_can_be_seen(tmp_path):
    found = comparison(level="char", text=[*"ab c b", EOS] * 60)
    assert "␣" in page(found)
    for step in (*found.a_ahead, *found.b_ahead):
        assert "".join(step.context) in Page(page(found)).text  # no spaces between letters
    write(found, tmp_path, {})


@pytest.mark.parametrize(("p", "text"), [(0.384, "0.38"), (0.0096, "0.01"), (0.0041, "0.004"), (2.2e-5, "2e-05")])
def test_probabilities(p, text):
    assert probability(p) == text


def test_the_component_that_did_it_is_shown_however_light():
    components = [Component(k, w, 0.1, share, []) for k, w, share in [(3, 0.5, 0.1), (1, 0.3, 0.1), (2, 0.1, 0.0)]]
    components += [Component(4, 0.05, 0.1, 0.0, []), Component(5, 0.03, 0.1, 0.1, []), Component(6, 0.02, 0.9, 0.7, [])]
    shown, rest = speaking(Prediction(1.0, 0.4, 1, [], components))
    assert [c.index for c in shown] == [3, 1, 2, 4, 6]
    assert rest == "1 more has 0.03 of the weight"
    shown, rest = speaking(
        Prediction(1.0, 0.4, 1, [], [Component(1, 0.6, 0.1, None, []), Component(2, 0.4, 0.1, None, [])])
    )
    assert (len(shown), rest) == (2, "")
