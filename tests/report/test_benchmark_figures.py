"""Figures of the committed benchmark results."""

from pathlib import Path

import pytest

from highrank.bench.lstm import LSTMRow
from highrank.bench.mos_nll import LossRow
from highrank.bench.step import StepRow
from highrank.bench.table import read_rows
from highrank.plotting import pyplot
from highrank.report.figures.benchmarks import call_figure, scaling_figure, step_figure

RESULTS = Path(__file__).parents[2] / "results" / "benchmarks"


@pytest.mark.parametrize(
    ("name", "row_type", "draw", "panels"),
    [
        ("mos_nll_h200", LossRow, call_figure, 6),
        ("mos_nll_cpu", LossRow, call_figure, 2),
        ("mos_nll_scaling_h200", LossRow, scaling_figure, 6),
        ("lstm_h200", LSTMRow, call_figure, 3),
        ("step_cpu", StepRow, step_figure, 2),
        ("step_h200", StepRow, step_figure, 2),
    ],
)
def test_a_figure_has_one_panel_per_question(name, row_type, draw, panels):
    figure = draw(read_rows(RESULTS / f"{name}.csv", row_type))
    assert len(figure.axes) == panels
    assert all(axis.patches or axis.lines for axis in figure.axes)
    pyplot().close(figure)
