"""What the verbs share: tables that fit the screen, and values as --set takes them."""

import io

import pytest
from rich.console import Console
from rich.table import Table

from highrank.cli import options
from highrank.recipes import RECIPES, flat, override


def printed(monkeypatch, table, width):
    console = Console(file=io.StringIO(), width=width)
    monkeypatch.setattr(options, "out", console)
    options.print_fitting(table, left=1)
    return console.file.getvalue()


def wide():
    table = Table("who", *(f"column{i}" for i in range(12)), "empty", title="a title")
    for name in ("first", "second"):
        table.add_row(name, *(f"{name}{i}" for i in range(12)), "-")
    return table


def test_a_table_that_is_too_wide_goes_on_below_itself(monkeypatch):
    text = printed(monkeypatch, wide(), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("a title") == 1
    assert text.count("who") == text.count("┏━") == 2
    assert all(f"column{i}" in text and f"second{i}" in text for i in range(12))


def test_a_table_that_fits_stays_one_without_columns_that_say_nothing(monkeypatch):
    text = printed(monkeypatch, wide(), 300)
    assert text.count("who") == 1
    assert "column11" in text
    assert "empty" not in text


@pytest.mark.parametrize("name", RECIPES)
def test_what_is_shown_of_a_recipe_can_be_set(name):
    recipe = RECIPES[name]
    shown = [f"{key}={options.plain(value)}" for key, value in flat(recipe.resolved()).items()]
    assert override(recipe, shown) == recipe
