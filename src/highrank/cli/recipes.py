"""`highrank recipes`: compare the recipes side by side."""

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from highrank.cli.console import out, print_in_parts, print_json, say
from highrank.cli.options import AsJson, format_setting

if TYPE_CHECKING:
    from highrank.recipes.recipe import Recipe


def recipes(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Show only these. Default: all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare the recipes side by side, with the results that the paper reports for them."""
    from highrank.recipes import RECIPES, get_recipe

    chosen = [get_recipe(name) for name in dict.fromkeys(names or RECIPES)]
    if as_json:
        print_json(
            [{**r.resolved(), "about": r.about, "paper": [dataclasses.asdict(p) for p in r.paper]} for r in chosen]
        )
        return
    for corpus in dict.fromkeys(recipe.data.corpus for recipe in chosen):
        group = [recipe for recipe in chosen if recipe.data.corpus == corpus]
        table = _side_by_side(group)
        table.title = f"corpus {corpus}"
        print_in_parts(table, repeat=1)
        about = Table.grid(padding=(0, 2))
        about.add_column(no_wrap=True)
        for recipe in group:
            about.add_row(recipe.name, recipe.about)
        out.print(about, "")
    name = chosen[0].name if len(chosen) == 1 else "NAME"
    say(f"Train with 'highrank train {name}'; change a value with --set, as in --set model.n_components=5.")


def _side_by_side(group: "list[Recipe]") -> Table:
    """Return a table with one column per recipe and one row per setting; names and values are never wrapped."""
    table = Table()
    for name in ("", *(recipe.name for recipe in group)):
        table.add_column(name, no_wrap=True)
    for part in ("model", "train"):
        for field in dataclasses.fields(getattr(group[0], part)):
            values = [format_setting(getattr(getattr(recipe, part), field.name)) for recipe in group]
            table.add_row(f"{part}.{field.name}", *values)
        table.add_section()
    for label, finetuned in (("paper, valid / test", False), ("paper, finetuned", True)):
        cells = [_paper_result(recipe, finetuned) for recipe in group]
        if any(cell != "-" for cell in cells):
            table.add_row(label, *cells)
    return table


def _paper_result(recipe: "Recipe", finetuned: bool) -> str:
    results = [f"{p.valid:.2f} / {p.test:.2f}" for p in recipe.paper if p.finetuned == finetuned]
    return " ".join(results) or "-"
