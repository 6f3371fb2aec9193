"""`highrank recipes`: list the recipes, or compare some of them side by side."""

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from highrank.cli.console import out, print_json, print_table, say
from highrank.cli.options import AsJson, complete_recipe

if TYPE_CHECKING:
    from highrank.recipes import AnyRecipe


def recipes(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Show every setting of these.", autocompletion=complete_recipe),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the recipes, or compare some of them side by side: every setting, and the results that the paper reports.

    Examples:

      highrank recipes

      highrank recipes ptb-softmax ptb-mos
    """
    from highrank.recipes import ALL_RECIPES, get_recipe
    from highrank.schema import to_json

    chosen = [get_recipe(name) for name in dict.fromkeys(names or ALL_RECIPES)]
    if as_json:
        print_json([{**r.resolved(), "about": r.about, "paper": to_json(r.paper)} for r in chosen])
        return
    for corpus in dict.fromkeys(recipe.data.corpus for recipe in chosen):
        group = [recipe for recipe in chosen if recipe.data.corpus == corpus]
        title = f"corpus {corpus}" if corpus else "your own text: --set data.corpus=FOLDER"
        if names:
            column = sum(max(16, len(recipe.name) + 3) for recipe in group) / len(group)  # its mean width
            fitting = max(1, int((out.width - 32) / column))  # beside the names of the settings
            for i in range(0, len(group), fitting):
                print_table(_side_by_side(group[i : i + fitting], title if i == 0 else None))
        else:
            say(title, style="bold")
        _print_descriptions(group)
    if names:
        name = chosen[0].name if len(chosen) == 1 else "NAME"
        say(
            f"Train with 'highrank train {name}'; change a value with --set, as in --set model.n_components=5. "
            "docs/recipes.md explains the settings."
        )
    else:
        say("'highrank recipes NAME' shows every setting of a recipe, 'highrank train NAME' trains it.")


def _print_descriptions(group: "list[AnyRecipe]") -> None:
    """Print the names of recipes, each with one line about it."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    for recipe in group:
        table.add_row(f"  {recipe.name}", recipe.about)
    out.print(table, "")


def _side_by_side(group: "list[AnyRecipe]", title: str | None) -> Table:
    """Return a table with one column per recipe and one row per setting."""
    from highrank.recipes.settings import format_setting

    table = Table("", *(recipe.name for recipe in group), title=title, title_justify="left")
    for part in group[0].specs():
        for field in dataclasses.fields(group[0].specs()[part]):
            values = [format_setting(getattr(recipe.specs()[part], field.name)) for recipe in group]
            table.add_row(f"{part}.{field.name}", *values)
        table.add_section()
    results = [_paper_results(recipe) for recipe in group]
    for label in dict.fromkeys(label for own in results for label in own):
        table.add_row(label, *(own.get(label, "-") for own in results))
    return table


def _paper_results(recipe: "AnyRecipe") -> dict[str, str]:
    """Return the results that the paper prints for a recipe, by their labels in the table."""
    from highrank.recipes import DialogRecipe

    if isinstance(recipe, DialogRecipe):
        return {} if recipe.paper is None else {"paper, perplexity": f"{recipe.paper.perplexity:.2f}"}
    unit = ", bpc" if recipe.data.level == "char" else ""
    labels = {False: f"paper, valid / test{unit}", True: "paper, finetuned"}
    return {labels[p.finetuned]: f"{p.valid:.2f} / {p.test:.2f}" for p in recipe.paper}
