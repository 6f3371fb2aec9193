"""Every command says in one shape where its output is."""

from pathlib import Path

from highrank.files import written


def test_where_the_output_is():
    page, figure = Path("out/page.html"), Path("out/figure.png")
    assert written(page) == "Written to out/page.html"
    assert written((page, "3 MB")) == "Written to out/page.html (3 MB)"
    assert written(page, (figure, "loss")) == "Written to:\n  out/page.html\n  out/figure.png (loss)"
