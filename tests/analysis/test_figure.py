import pytest

from highrank.analysis.figure import BY_HEAD, FLOOR, Curve, _styles, draw


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
