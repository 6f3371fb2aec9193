"""The paper's hyper-parameters as data, one file a corpus. `highrank recipes` prints them side by side."""

from highrank.errors import UserError, nearest
from highrank.recipes import penn, pydoc, wikitext2
from highrank.recipes.recipe import (
    CacheSettings,
    DataSpec,
    DynamicSettings,
    ModelSpec,
    PaperResult,
    Recipe,
    TrainSpec,
    override,
)

__all__ = [
    "RECIPES",
    "DataSpec",
    "ModelSpec",
    "PaperResult",
    "Recipe",
    "TrainSpec",
    "cache_settings",
    "dynamic_settings",
    "get_recipe",
    "override",
]

RECIPES = {recipe.name: recipe for part in (penn, wikitext2, pydoc) for recipe in part.RECIPES}


def get_recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise UserError(f'there is no recipe called "{name}"{nearest(name, RECIPES)}')
    return RECIPES[name]


def cache_settings(corpus: str) -> CacheSettings:
    """Merity et al.'s settings of the continuous cache for a corpus; those of Penn Treebank for any other."""
    return wikitext2.CACHE if corpus == "wikitext-2" else penn.CACHE


def dynamic_settings(corpus: str) -> DynamicSettings:
    """The paper's settings of dynamic evaluation for a corpus; those of Penn Treebank for any other."""
    return wikitext2.DYNAMIC if corpus == "wikitext-2" else penn.DYNAMIC
