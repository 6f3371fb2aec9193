"""`highrank recipes`: tables and JSON."""

import json

import pytest

from helpers import fails, highrank
from highrank.cli.console import out
from highrank.recipes import ALL_RECIPES


def test_json_has_settings_and_paper_results(tmp_path):
    rows = {row["name"]: row for row in json.loads(highrank("recipes", "--json", cwd=tmp_path).stdout)}
    assert list(rows) == list(ALL_RECIPES)
    assert rows["ptb-mos"]["model"]["n_components"] == 15
    assert rows["wt2-mos"]["paper"][0]["test"] == 63.33


def test_named_recipes_are_shown_once_in_the_order_given(tmp_path):
    done = highrank("recipes", "wt2-mos", "ptb-mos", "wt2-mos", "--json", cwd=tmp_path)
    assert [row["name"] for row in json.loads(done.stdout)] == ["wt2-mos", "ptb-mos"]


def test_an_unknown_recipe_is_an_error_that_suggests_the_nearest(tmp_path):
    assert '"ptb-mos"' in fails("recipes", "ptb-moz", cwd=tmp_path)


def test_without_names_every_recipe_has_one_line(tmp_path):
    lines = [line.split(maxsplit=1) for line in highrank("recipes", cwd=tmp_path).stdout.splitlines()]
    described = {line[0]: line[1].strip() for line in lines if len(line) == 2 and line[0] in ALL_RECIPES}
    assert described == {name: recipe.about for name, recipe in ALL_RECIPES.items()}


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_fit_the_screen_without_cutting_a_value(width, tmp_path, monkeypatch):
    monkeypatch.setattr(out, "width", width)
    lines = highrank("recipes", *ALL_RECIPES, cwd=tmp_path).stdout.splitlines()
    tables = [line for line in lines if line[:1] in "┏┃┡│├└"]
    assert max(map(len, tables)) <= width
    names = [cell.strip() for line in lines if line.startswith("┃") for cell in line.strip("┃").split("┃")]
    assert [name for name in names if name] == list(ALL_RECIPES)
    for value in ("1150,1150,400", "data.level", "two-tailed", "68.73 / 65.40", "train.finetune_max_epochs"):
        assert any(value in line for line in tables)
