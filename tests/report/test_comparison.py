"""A comparison as files: the page is self-contained, odd words are escaped, and every form has the same numbers."""

import dataclasses
import json
import re

import pytest
import torch

from highrank.analysis.compare import Comparison, Side, Step, compare
from highrank.analysis.groups import Group
from highrank.analysis.paper_cases import PAPER_CASES
from highrank.analysis.prediction import Candidate, Component, Prediction
from highrank.data.corpus import EOS, Corpus, tokenize
from highrank.models import build_model
from highrank.recipes import ModelSpec
from highrank.report.comparison import comparison_json, render_comparison, write_comparison
from highrank.report.comparison_text import format_probability, shown_components, summary
from highrank.report.figures.comparison import plot_gains
from html_reader import HtmlReader

ODD = ["<b>", "a|b", "`", "*", "&amp;", "[x](y)", "$", "_", "'", '"', "</mark>", "é"]


def compare_toys(name="toy", level="word", heads=("mos", "moc"), text=None):
    """Compare two untrained models on a random text of odd words, or on `text`."""
    generator = torch.Generator().manual_seed(0)
    text = text or [ODD[i] if i < len(ODD) else EOS for i in torch.randint(14, (900,), generator=generator)] + [EOS]
    words, splits = tokenize({"train": text[:300], "valid": text, "test": text})
    corpus = Corpus(name, level, words, splits, "x")
    torch.manual_seed(1)
    models = [build_model(ModelSpec(head, 6, (6,), n_components=6), len(words)).eval() for head in heads]
    for p in (p for m in models for p in m.parameters()):
        p.data.mul_(6)
    return compare(*models, corpus, n=3, names=("one_<i>", "two"))


@pytest.fixture(scope="module")
def comparison():
    return compare_toys()


def by_hand(**changes):
    """Return a comparison with one step in each direction and all numbers distinct."""
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


def page_of(comparison):
    return HtmlReader(render_comparison("comparison.html", comparison, "data:,"))


def markdown_of(comparison):
    return render_comparison("comparison.md", comparison, "f.png")


def markdown_rows(text):
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_group_rows_have_the_numbers_of_their_group():
    wanted = ["1 to 9", "40", "5.125", "5.375", "+0.2500 ± 0.0500"]
    assert wanted in [row[:5] for row in page_of(by_hand()).rows]
    assert wanted in markdown_rows(markdown_of(by_hand()))


def test_steps_have_the_prediction_of_each_side():
    rows = markdown_rows(markdown_of(by_hand()))
    assert ["one", "`came` 0.60, `other` 0.30", "0.60, rank 1"] in rows
    assert ["two", "`guess` 0.70, `other` 0.20", "0.08, rank 7"] in rows
    text = page_of(by_hand()).text
    assert text.index("+2.00 nats") < text.index("-2.00 nats")
    assert "0.08, rank 7" in text


def test_the_summary_names_the_better_model():
    assert "two gains 0.0500 ± 0.0100" in summary(by_hand())
    better = dataclasses.replace(by_hand().overall, gain=0.05)
    assert "one gains 0.0500 ± 0.0100" in summary(by_hand(overall=better))
    assert '"far"' in summary(by_hand(contains="far"))


def test_intervals_are_two_standard_errors_each_way():
    figure = plot_gains(by_hand())
    up, down = figure.axes[0].containers
    assert [float(x) for x in up[2][0].get_segments()[0][:, 0]] == pytest.approx([0.15, 0.35])
    assert up[0].get_color() != down[0].get_color()


@pytest.mark.parametrize("share", [0.75, None])
def test_components_have_a_share_if_the_mixture_defines_one(share):
    parts = [Component(7 - k, 0.4 - k / 10, 0.6, share, [Candidate("came", 0.6)]) for k in range(3)]
    step = by_hand().a_ahead[0]
    step = dataclasses.replace(step, a=dataclasses.replace(step.a, components=parts))
    rows = page_of(by_hand(a_ahead=[step], b_ahead=[])).rows
    wanted = ["7", "0.40", "0.75"] if share else ["7", "0.40"]
    assert wanted in [row[: len(wanted)] for row in rows]
    assert ("share" in [cell for row in rows for cell in row]) == (share is not None)


def test_the_component_with_the_largest_share_is_shown_whatever_its_weight():
    components = [Component(k, w, 0.1, share, []) for k, w, share in [(3, 0.5, 0.1), (1, 0.3, 0.1), (2, 0.1, 0.0)]]
    components += [Component(4, 0.05, 0.1, 0.0, []), Component(5, 0.03, 0.1, 0.1, []), Component(6, 0.02, 0.9, 0.7, [])]
    shown, _ = shown_components(Prediction(1.0, 0.4, 1, [], components))
    assert [c.index for c in shown] == [6, 3, 1, 2]


def test_the_page_is_self_contained_and_its_links_resolve(comparison):
    page = page_of(comparison)
    assert not {"script", "link"} & set(page.tags)
    assert page.images == ["data:,"]
    assert set(page.links) == {f"#{key}" for key in page.ids}


def test_odd_words_are_escaped_on_the_page(comparison):
    page = page_of(comparison)
    assert "i" not in page.tags  # of the run's name
    assert page.tags.count("mark") == len(comparison.a_ahead) + len(comparison.b_ahead) == 6
    for step in (*comparison.a_ahead, *comparison.b_ahead):
        assert " ".join(step.context) in page.text


def test_odd_words_keep_the_columns_of_markdown_tables(comparison):
    for block in re.findall(r"(?:^\|.*\n)+", markdown_of(comparison), flags=re.M):
        assert len({len(row) for row in markdown_rows(block)}) == 1, block


def test_all_files_are_written(tmp_path, comparison):
    files = write_comparison(comparison, tmp_path / "out", {"runs": ["a", "b"]})
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(f.name for f in files)
    data = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert data == json.loads(json.dumps(comparison_json(comparison) | {"runs": ["a", "b"]}))
    assert data["a"]["perplexity"] == pytest.approx(comparison.a.perplexity)
    assert "(comparison.png)" in (tmp_path / "out" / "comparison.md").read_text()


def test_the_papers_cases_are_shown_where_the_text_has_them():
    case = PAPER_CASES[0]
    comparison = compare_toys("penn", heads=("mos", "softmax"), text=[*case.key.split(), case.reference, "x", EOS] * 30)
    page = page_of(comparison)
    assert page.tags.count("mark") == 1 + len(comparison.a_ahead) + len(comparison.b_ahead)
    for text in (page.text, markdown_of(comparison).replace("\\", "")):
        for paper_case in PAPER_CASES:
            assert paper_case.moc in text


def test_contexts_of_characters_have_no_spaces_between_letters():
    comparison = compare_toys(level="char", text=[*"ab c b", EOS] * 60)
    for step in (*comparison.a_ahead, *comparison.b_ahead):
        assert "".join(step.context) in page_of(comparison).text


@pytest.mark.parametrize(("p", "text"), [(0.384, "0.38"), (0.0096, "0.01"), (0.0041, "0.004"), (2.2e-5, "2e-05")])
def test_probabilities_keep_a_significant_digit(p, text):
    assert format_probability(p) == text
