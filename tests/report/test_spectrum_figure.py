import pytest

from highrank.report.figures import spectrum as module
from highrank.report.figures.spectrum import BY_HEAD, FLOOR, Curve, _styles, draw, draw_use


def curve(head="mos", values=(8.0, 4.0, 2.0, 0.0), total=4, round_off=1e-14):
    return Curve(f"a {head}", head, tuple(range(1, len(values) + 1)), values, total, round_off)


def test_points_are_the_share_of_singular_values_below():
    assert curve().points() == ([1.0, 0.5, 0.25, FLOOR], [75.0, 50.0, 25.0, 0.0])
    # Through a projection only the top is known, and stands at its height among all.
    assert curve(values=(8.0, 4.0), total=100).points() == ([1.0, 0.5], [99.0, 98.0])


def test_styles():
    assert _styles([curve("softmax"), curve("mos")]) == [BY_HEAD["softmax"], BY_HEAD["mos"]]
    several = _styles([curve("mos") for _ in range(9)])
    assert len(set(several)) == 9


@pytest.mark.parametrize("round_off", [1e-14, None])
def test_both_files_are_written(tmp_path, round_off):
    paths = draw(tmp_path, [curve(round_off=round_off), curve("softmax", round_off=round_off)], "a title")
    assert [p.name for p in paths] == ["spectrum.png", "spectrum.svg"]
    svg = paths[1].read_text()
    assert "a softmax" in svg
    assert ("round-off" in svg) == (round_off is not None)


@pytest.fixture
def drawn(monkeypatch):
    """The figures as they are when they would be written."""
    from matplotlib import pyplot as plt

    figures = []
    monkeypatch.setattr(module, "_save", lambda folder, figure: figures.append(figure))
    yield figures
    for figure in figures:
        plt.close(figure)


def test_what_is_drawn(tmp_path, drawn):
    draw(tmp_path, [curve(round_off=1e-14), curve("softmax", round_off=1e-13)], "a title")
    (axis,) = drawn[0].axes
    assert [list(x) for x in axis.lines[0].get_data()] == list(curve().points())
    assert axis.patches[0].get_x() + axis.patches[0].get_width() == pytest.approx(1e-13, rel=1e-9, abs=0)
    assert axis.get_legend()
    draw(tmp_path, [curve() for _ in range(5)], "many")
    assert drawn[1].legends  # beside the curves
    assert not drawn[1].axes[0].get_legend()


def test_the_use_of_an_output_matrix_is_drawn_over_each_largest(tmp_path, drawn):
    spectra = {"log P": {"index": [1, 2], "values": [8.0, 2.0]}, "W": {"index": [1, 2], "values": [4.0, 0.0]}}
    draw_use(tmp_path, spectra, 1e-13, "a title")
    (axis,) = drawn[0].axes
    assert [list(line.get_ydata()) for line in axis.lines] == [[1.0, 0.25], [1.0, FLOOR]]
    assert axis.patches[0].get_y() + axis.patches[0].get_height() == pytest.approx(1e-13, rel=1e-9, abs=0)
