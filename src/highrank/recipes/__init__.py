"""The paper's hyper-parameters as data, one file a corpus. `highrank recipes` prints them side by side."""

import json
from typing import Any

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
    flat,
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
    "overrides",
]

RECIPES = {recipe.name: recipe for part in (penn, wikitext2, pydoc) for recipe in part.RECIPES}


def get_recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise UserError(f'there is no recipe called "{name}"{nearest(name, RECIPES)}')
    return RECIPES[name]


def overrides(resolved: dict[str, Any]) -> dict[str, Any]:
    """Where a run's stored recipe differs from the recipe of its name; nothing for a recipe of one's own.

    The precision that `auto` chose on a machine is no difference, and neither is a key that the older of the two lacks.
    """
    if resolved["name"] not in RECIPES:
        return {}
    recipe = RECIPES[resolved["name"]]
    usual, own = flat(json.loads(json.dumps(recipe.resolved()))), flat(json.loads(json.dumps(resolved)))
    if recipe.train.precision == "auto":
        usual["train.precision"] = own.get("train.precision")
    return {key: own[key] for key in usual if key in own and own[key] != usual[key]}


def cache_settings(corpus: str) -> CacheSettings:
    """Merity et al.'s settings of the continuous cache for a corpus; those of Penn Treebank for any other."""
    return wikitext2.CACHE if corpus == "wikitext-2" else penn.CACHE


def dynamic_settings(corpus: str) -> DynamicSettings:
    """The paper's settings of dynamic evaluation for a corpus; those of Penn Treebank for any other."""
    return wikitext2.DYNAMIC if corpus == "wikitext-2" else penn.DYNAMIC
