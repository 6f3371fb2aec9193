"""Figures leave whole files, in the format of each ending, and nothing open."""

import pytest

from highrank.plotting import pyplot, save_figure


def test_nothing_touches_the_edge(tmp_path):
    figure, axis = pyplot().subplots(layout="constrained")
    axis.set_ylabel("a label")
    save_figure(figure, [tmp_path / "a.png"])
    assert axis.yaxis.label.get_window_extent().x0 > 7  # pixels, at 100 an inch; matplotlib leaves 6


def test_a_picture_is_as_large_as_it_was_asked_to_be(tmp_path):
    figure, _ = pyplot().subplots(figsize=(4, 3))
    (file,) = save_figure(figure, [tmp_path / "a.png"], dpi=50)
    assert pyplot().imread(file).shape[:2] == (150, 200)


@pytest.mark.filterwarnings("error")
def test_words_in_a_script_without_glyphs_are_drawn_without_a_warning(tmp_path):
    figure, axis = pyplot().subplots()
    axis.set_title("\u8a00\u8a9e")  # two Chinese characters
    save_figure(figure, [tmp_path / "a.png"])


def test_a_figure_is_written_in_each_format_and_closed(tmp_path):
    figure, axis = pyplot().subplots()
    axis.plot([1, 2])
    files = [tmp_path / "new" / "a.png", tmp_path / "new" / "a.svg"]
    assert save_figure(figure, iter(files)) == files
    assert files[0].read_bytes().startswith(b"\x89PNG")
    assert "<svg" in files[1].read_text()
    assert sorted(path.name for path in files[0].parent.iterdir()) == ["a.png", "a.svg"]
    assert not pyplot().fignum_exists(figure.number)
