"""The paper's hyper-parameters as data, one file per corpus."""

import json
from typing import Any

from highrank.errors import UserError, nearest
from highrank.recipes import one_billion, own_text, penn, pydoc, switchboard, text8, wikitext2
from highrank.recipes.dialog import DialogRecipe
from highrank.recipes.recipe import (
    CacheSettings,
    DataSpec,
    DynamicSettings,
    ModelSpec,
    PaperResult,
    Recipe,
    TrainSpec,
)
from highrank.recipes.settings import AnyRecipe, flat, override

__all__ = [
    "ALL_RECIPES",
    "DIALOG_RECIPES",
    "RECIPES",
    "AnyRecipe",
    "DataSpec",
    "DialogRecipe",
    "ModelSpec",
    "PaperResult",
    "Recipe",
    "TrainSpec",
    "cache_settings",
    "dynamic_settings",
    "get_recipe",
    "override",
    "overrides",
]

LANGUAGE_MODULES = (penn, wikitext2, one_billion, text8, pydoc, own_text)
RECIPES = {recipe.name: recipe for module in LANGUAGE_MODULES for recipe in module.RECIPES}  # of language models
DIALOG_RECIPES = {recipe.name: recipe for recipe in switchboard.RECIPES}
ALL_RECIPES: dict[str, AnyRecipe] = {**RECIPES, **DIALOG_RECIPES}


def get_recipe(name: str) -> AnyRecipe:
    """Return the recipe of this name, or raise a UserError that suggests the nearest one."""
    if name not in ALL_RECIPES:
        raise UserError(f'there is no recipe called "{name}"{nearest(name, ALL_RECIPES)}')
    return ALL_RECIPES[name]


def overrides(resolved: dict[str, Any]) -> dict[str, Any]:
    """Return the keys in which a stored recipe differs from the recipe of its name; {} if there is none of that name.

    The precision that "auto" resolved to on a machine does not count as a difference.
    """
    if resolved["name"] not in ALL_RECIPES:
        return {}
    recipe = ALL_RECIPES[resolved["name"]]
    stored = flat(json.loads(json.dumps(resolved)))  # through JSON, which turns tuples into lists
    defaults = flat(json.loads(json.dumps(recipe.resolved())))
    if recipe.train.precision == "auto":
        defaults["train.precision"] = stored.get("train.precision")
    return {key: value for key, value in stored.items() if value != defaults.get(key)}


def cache_settings(corpus: str) -> CacheSettings:
    """Return Merity et al.'s settings of the continuous cache; a corpus without its own gets Penn Treebank's."""
    return wikitext2.CACHE if corpus == "wikitext-2" else penn.CACHE


def dynamic_settings(corpus: str) -> DynamicSettings:
    """Return the paper's settings of dynamic evaluation; a corpus without its own gets Penn Treebank's."""
    return wikitext2.DYNAMIC if corpus == "wikitext-2" else penn.DYNAMIC
