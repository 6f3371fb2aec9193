"""The paper's hyper-parameters as data, one file a corpus. `highrank recipes` prints them side by side."""

from highrank.errors import UserError, nearest
from highrank.recipes import penn, pydoc, wikitext2
from highrank.recipes.recipe import DataSpec, DynamicSettings, ModelSpec, PaperResult, Recipe, TrainSpec, override

__all__ = [
    "RECIPES",
    "DataSpec",
    "ModelSpec",
    "PaperResult",
    "Recipe",
    "TrainSpec",
    "dynamic_settings",
    "get_recipe",
    "override",
]

RECIPES = {recipe.name: recipe for part in (penn, wikitext2, pydoc) for recipe in part.RECIPES}


def get_recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise UserError(f'there is no recipe called "{name}"{nearest(name, RECIPES)}')
    return RECIPES[name]


def dynamic_settings(corpus: str) -> DynamicSettings:
    """The paper's settings of dynamic evaluation for a corpus; those of Penn Treebank for any other."""
    return wikitext2.DYNAMIC if corpus == "wikitext-2" else penn.DYNAMIC
