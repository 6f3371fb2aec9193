"""Learning curves draw the numbers of run folders and of records."""

import pytest

from helpers import highrank, settings
from highrank.errors import UserError
from highrank.plotting import pyplot
from highrank.report.figures.curves import learning_curves, plot_curves
from highrank.report.records import load_runs
from highrank.runs.folder import Run
from result_files import curve, run_record, stage, write_results


@pytest.fixture
def draw(tmp_path):
    """Draw the curves of records on Penn Treebank by name; close the figure after the test."""
    yield lambda runs: learning_curves("ptb", load_runs(write_results(tmp_path, runs)))
    pyplot().close("all")


def lines(figure, axis=0):
    return [[list(map(float, values)) for values in line.get_data()] for line in figure.axes[axis].lines]


def test_curves_start_at_the_first_finite_epoch_and_mark_averaging_and_finetuning(draw):
    figure = draw({"a": run_record(valid=70.0, stage=1, stages=[stage(0, 2, 73.0), stage(1, 3, 70.0)])})
    for axis, x in ((0, [2.0, 3.0]), (1, [400 / 60, 600 / 60])):
        line, averaging, finetuning, in_paper = lines(figure, axis)
        assert line == [x, [73.0, 70.0]]
        assert (averaging, finetuning) == ([x[:1], [73.0]], [x[1:], [70.0]])
        assert in_paper[1] == [58.08, 58.08]


def test_the_longest_run_of_each_recipe_is_drawn(draw):
    longer = curve([1, 2, 3, 4], [80.0, 70.0, 66.0, 65.0])
    other_model = run_record(settings=["model.n_components=5"], curve=longer)
    runs = {"long": run_record(curve=longer), "short": run_record(valid=60.0), "other": other_model}
    figure = draw({**runs, "softmax": run_record("ptb-softmax"), "wt2": run_record("wt2-mos")})
    curves = [line for line in figure.axes[0].lines if line.get_label().startswith("ptb")]
    assert {line.get_label(): line.get_ydata()[-1] for line in curves} == {
        "ptb-softmax, 10 min": 70.0,
        "ptb-mos, 10 min": 65.0,
    }


def test_a_run_that_diverged_is_not_drawn(draw):
    assert draw({"a": run_record(curve=curve([1, 2, 3], [None] * 3))}) is None


def test_curves_of_run_folders_have_their_epochs(place, trained):
    figure = plot_curves([trained, str(trained)])
    (metrics,) = Run(trained).epochs()
    assert lines(figure) == [[[1.0], [metrics.valid_ppl]]] * 2
    assert lines(figure, axis=1)[0] == [[metrics.seconds / 60], [metrics.valid_ppl]]
    pyplot().close(figure)


def test_the_curve_of_the_current_folder_has_the_name_of_the_run(trained, monkeypatch):
    monkeypatch.chdir(trained)
    figure = plot_curves(".")
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["run"]
    pyplot().close(figure)


def test_a_run_without_an_epoch_has_no_curve(trained):
    (trained / "metrics.jsonl").write_text("")
    with pytest.raises(UserError, match="run"):
        plot_curves(trained)


def test_no_run_has_no_curve():
    with pytest.raises(UserError):
        plot_curves([])


def test_words_and_characters_are_not_drawn_together(place, trained):
    options = settings("data.corpus=toy data.level=char")
    highrank("train", "ptb-mos", *options, "--out", "characters", "--max-epochs", 0, cwd=place)
    with pytest.raises(UserError, match="char"):
        plot_curves([trained, place / "characters"])
