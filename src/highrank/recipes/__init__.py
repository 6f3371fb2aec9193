"""The paper's hyper-parameters as data, one file a corpus. `highrank recipes` prints them side by side."""

from highrank.errors import UserError, nearest
from highrank.recipes import penn, pydoc, wikitext2
from highrank.recipes.recipe import DataSpec, ModelSpec, PaperResult, Recipe, TrainSpec, override

__all__ = ["RECIPES", "DataSpec", "ModelSpec", "PaperResult", "Recipe", "TrainSpec", "get_recipe", "override"]

RECIPES = {recipe.name: recipe for part in (penn, wikitext2, pydoc) for recipe in part.RECIPES}


def get_recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise UserError(f'there is no recipe called "{name}"{nearest(name, RECIPES)}')
    return RECIPES[name]
