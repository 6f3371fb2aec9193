"""A comparison as files: a self-contained page with the numbers of the comparison and odd words escaped, and JSON."""

import json
from dataclasses import replace

import pytest

from highrank.analysis.compare import ComparedStep, Comparison, OurCase, Side
from highrank.analysis.groups import Group
from highrank.analysis.paper_cases import PAPER_CASES
from highrank.analysis.prediction import Candidate, Component, Prediction
from highrank.plotting import pyplot
from highrank.report.comparison import comparison_json, render_comparison, write_comparison
from highrank.report.comparison_text import format_probability, groupings, shown_components, summary
from highrank.report.figures.comparison import plot_gains
from html_reader import HtmlReader

ONE = Prediction(0.5, 0.6, 1, [Candidate("came", 0.6), Candidate("other", 0.3)], [])
TWO = Prediction(2.5, 0.08, 7, [Candidate("guess", 0.7), Candidate("other", 0.2)], [])
AHEAD = ComparedStep(1234, ["so", "far"], "came", ["rest"], 2.0, ONE, TWO)
BEHIND = ComparedStep(77, ["then"], "came", [], -2.0, TWO, ONE)
GROUPS = [Group("1 to 9", 40, 5.125, 5.375, 0.25, 0.05), Group("10 to 99", 60, 4.5, 4.25, -0.25, None)]
COMPARISON = Comparison(
    "toy", "word", "test", None, 200, Side("one", "mos", 3, 5000, 4.75), Side("two", "softmax", 1, 6000, 4.70),
    Group("all", 100, 4.75, 4.70, -0.05, 0.01), 30, [AHEAD], [BEHIND], GROUPS, [], [], None,
)  # fmt: skip

WORDS = ["<b>", "a|b", "`", "*", "&amp;", "[x](y)", "$", "_", "'", '"', "</mark>", "é"]
ODD_PREDICTION = Prediction(0.5, 0.6, 1, [Candidate(word, 0.01) for word in WORDS], [])
ODD = replace(
    COMPARISON,
    a=Side("one_<i>|", "mos", 3, 5000, 4.75),
    a_ahead=[ComparedStep(5, WORDS, "</mark>", WORDS, 2.0, ODD_PREDICTION, ODD_PREDICTION)],
    by_previous=[Group(word, 50, 1.0, 1.0, 0.1, 0.1) for word in WORDS],
)


def page_of(comparison):
    return HtmlReader(render_comparison(comparison, "data:,"))


def test_group_rows_have_the_numbers_of_their_group():
    assert ["1 to 9", "40", "5.125", "5.375", "+0.2500 ± 0.0500"] in page_of(COMPARISON).rows


def test_steps_have_the_prediction_of_each_side():
    text = page_of(COMPARISON).text
    assert text.index("+2.00 nats") < text.index("-2.00 nats")
    assert "0.08, rank 7" in text


def test_the_summary_names_the_better_model():
    assert "two is ahead of one by 0.0500 ± 0.0100" in summary(COMPARISON)
    assert "one is ahead of two by 0.0500 ± 0.0100" in summary(
        replace(COMPARISON, overall=replace(COMPARISON.overall, gain=0.05))
    )


def test_intervals_are_two_standard_errors_each_way():
    figure = plot_gains(COMPARISON)
    up, down = figure.axes[0].containers
    assert [float(x) for x in up[2][0].get_segments()[0][:, 0]] == pytest.approx([0.15, 0.35])
    assert up[0].get_color() != down[0].get_color()
    pyplot().close(figure)


@pytest.mark.parametrize("share", [0.75, None])
def test_components_have_a_share_if_the_mixture_defines_one(share):
    parts = [Component(7 - k, 0.4 - k / 10, 0.6, share, [Candidate("came", 0.6)]) for k in range(3)]
    step = replace(AHEAD, a=replace(ONE, components=parts))
    rows = page_of(replace(COMPARISON, a_ahead=[step])).rows
    wanted = ["7", "0.40", "0.75"] if share else ["7", "0.40"]
    assert wanted in [row[: len(wanted)] for row in rows]
    assert ("share" in [cell for row in rows for cell in row]) == (share is not None)


def test_the_components_with_the_largest_weight_or_share_are_shown():
    numbers = [(3, 0.5, 0.1), (1, 0.3, 0.1), (2, 0.1, 0.0), (4, 0.05, 0.0), (5, 0.03, 0.1), (6, 0.02, 0.7)]
    components = [Component(index, weight, 0.1, share, []) for index, weight, share in numbers]
    shown, _ = shown_components(Prediction(1.0, 0.4, 1, [], components))
    assert [component.index for component in shown] == [6, 3, 1, 2]


def test_previous_words_are_the_extremes_of_both_ends():
    groups = [Group(f"w{i}", 50, 1.0, 1.0, gain, 0.1) for i, gain in enumerate(range(13, -13, -1))]
    shown = groupings(replace(COMPARISON, by_previous=groups))[2].groups
    assert [group.gain for group in shown] == [*range(13, 3, -1), *range(-3, -13, -1)]


def test_the_page_is_self_contained_and_odd_words_are_escaped():
    page = page_of(ODD)
    assert not {"script", "link", "i"} & set(page.tags)
    assert page.images == ["data:,"]
    assert set(page.links) == {f"#{key}" for key in page.ids}
    assert page.tags.count("mark") == 2
    assert " ".join(WORDS) in page.text


def test_all_files_are_written(tmp_path):
    files = write_comparison(COMPARISON, tmp_path / "out", {"runs": ["a", "b"]})
    assert sorted((tmp_path / "out").iterdir()) == sorted(files)
    data = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert data == json.loads(json.dumps(comparison_json(COMPARISON) | {"runs": ["a", "b"]}))
    assert data["a"]["perplexity"] == pytest.approx(COMPARISON.a.perplexity)


def test_the_papers_cases_are_shown_where_the_text_has_them():
    cases = [OurCase(PAPER_CASES[0], AHEAD), OurCase(PAPER_CASES[1], None)]
    page = page_of(replace(COMPARISON, paper_cases=cases))
    assert page.tags.count("mark") == 3
    assert PAPER_CASES[0].moc in page.text
    assert PAPER_CASES[1].moc in page.text


def test_contexts_of_characters_have_no_spaces_between_letters():
    assert "sofar" in page_of(replace(COMPARISON, level="char")).text


@pytest.mark.parametrize(("p", "text"), [(0.384, "0.38"), (0.0096, "0.01"), (0.0041, "0.004"), (2.2e-5, "2e-05")])
def test_probabilities_keep_a_significant_digit(p, text):
    assert format_probability(p) == text
