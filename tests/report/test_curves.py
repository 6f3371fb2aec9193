"""The figures of the report draw the numbers of the records."""

import pytest

from highrank.plotting import HEADS, pyplot
from highrank.report.figures.curves import report_figures
from highrank.report.records import load_analyses, load_runs
from result_files import PROVENANCE, analysis, curve, piece, run_record, stage, write_results


@pytest.fixture
def draw(tmp_path):
    """Draw the figures of records by name; close them after the test."""

    def figures(runs=None, analyses=None):
        write_results(tmp_path, runs, analyses)
        return {name: one.figure for name, one in report_figures(load_runs(tmp_path), load_analyses(tmp_path)).items()}

    yield figures
    pyplot().close("all")


def lines(figure, axis=0):
    return [[list(map(float, values)) for values in line.get_data()] for line in figure.axes[axis].lines]


def legend(figure):
    return [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


def marks(figure):
    return [
        (line.get_marker(), line.get_xdata().tolist()) for line in figure.axes[0].lines if line.get_marker() in "o^"
    ]


def study(epochs=60):
    return {f"k{k}": run_record(settings=[f"model.n_components={k}"], valid=80.0 + k, epochs=epochs) for k in (1, 5)}


def test_learning_curves_start_at_the_first_finite_epoch(draw):
    stages = [stage(0, 2, 73.0), stage(1, 3, 70.0)]
    figure = draw({"a": run_record(valid=70.0, stage=1, stages=stages)})["curves-ptb"]
    for axis, x in ((0, [2.0, 3.0]), (1, [400 / 60, 600 / 60])):
        line, averaging, finetuning, in_paper = lines(figure, axis)
        assert line == [x, [73.0, 70.0]]
        assert (averaging, finetuning) == ([x[:1], [73.0]], [x[1:], [70.0]])
        assert in_paper[1] == [58.08, 58.08]


def test_the_study_over_k_has_a_figure_of_its_own(draw):
    figures = draw({**study(), "a": run_record()}, {"a": analysis(rank=9970)})
    assert legend(figures["curves-ptb"]) == ["ptb-mos, 10 min"]
    in_paper, ours = lines(figures["components"])
    assert in_paper == [[3.0, 5.0, 10.0, 15.0, 20.0], [58.62, 57.36, 56.33, 55.97, 56.17]]
    assert ours == [[1.0, 5.0], [79.0, 83.0]]
    assert lines(figures["components"], 1)[1] == [[15.0], [9970.0]]


def test_runs_of_one_head_differ_by_dashes(draw):
    figure = draw({"a": run_record(), "b": run_record(settings=["train.lr=15"]), "c": run_record("ptb-softmax")})
    curves = [line for line in figure["curves-ptb"].axes[0].lines if "min" in line.get_label()]
    assert {line.get_label(): (line.get_color(), line.get_linestyle()) for line in curves} == {
        "ptb-softmax, 10 min": (HEADS["softmax"], "-"),
        "ptb-mos, 10 min": (HEADS["mos"], "-"),
        "ptb-mos, lr=15.0, 10 min": (HEADS["mos"], "--"),
    }


def test_a_run_that_diverged_is_not_drawn(draw):
    assert draw({"a": run_record(curve=curve([1, 2, 3], [None] * 3))}) == {}


def test_a_dot_marks_every_restart_of_averaging(draw):
    pieces = [piece(0, averages_only=True), piece(1, averages_only=True), piece(3, averages_only=False), piece(4)]
    values = curve([1, 2, 3, 4, 5], [79.0, 78.0, 77.0, 76.0, 75.0])
    figure = draw({"a": run_record(epochs=5, curve=values, averaged_from=3, pieces=pieces)})["curves-ptb"]
    assert marks(figure) == [("o", [3]), ("o", [4])]


def test_a_triangle_replaces_the_dot_where_finetuning_restarts_averaging(draw):
    pieces = [piece(averages_only=True), piece(2)]
    stages = [stage(0, 2), stage(1, 3)]
    values = curve([1, 2, 3], [80.0, 79.0, 78.0])
    record = run_record(curve=values, averaged_from=1, pieces=pieces, stages=stages, stage=1)
    assert marks(draw({"a": record})["curves-ptb"]) == [("o", [1]), ("^", [3])]


def test_short_runs_are_left_out_beside_long_ones(draw):
    runs = {"trial": run_record("ptb-moc", epochs=12), "run": run_record("ptb-moc", epochs=192), "only": run_record()}
    assert legend(draw(runs)["curves-ptb"]) == ["ptb-moc, 10 min", "ptb-mos, 10 min"]


@pytest.mark.parametrize(
    ("started", "first_epoch", "shown"),
    [("10:00", 1, 1), ("11:00", 1, 2), ("10:00", 2, 2)],
    ids=["the same run later", "another run", "the same run without its first epoch"],
)
def test_a_run_that_was_continued_is_drawn_once(draw, started, first_epoch, shown):
    epochs = list(range(first_epoch, 6))
    earlier = run_record(seconds=180.0, curve=curve([1, 2, 3], [79.0, 78.0, 77.0]))
    later = run_record(
        epochs=5, seconds=300.0, curve=curve(epochs, [80.0 - e for e in epochs]),
        provenance={**PROVENANCE, "started": started},
    )  # fmt: skip
    assert legend(draw({"a": earlier, "b": later})["curves-ptb"]) == ["ptb-mos, 3 min", "ptb-mos, 5 min"][-shown:]
