"""Recipes as dotted keys: overrides such as `train.lr=15`, checks of every value, and recipes stored in run folders."""

import dataclasses
import difflib
import math
import types
import typing
from typing import Any, Literal, TypeVar

from highrank.errors import UserError, nearest
from highrank.recipes.dialog import DialogRecipe
from highrank.recipes.recipe import Recipe
from highrank.schema import SchemaError, from_json

AnyRecipe = Recipe | DialogRecipe
R = TypeVar("R", bound=AnyRecipe)


def flat(resolved: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a resolved recipe by dotted key: {"train": {"lr": 20}} -> {"train.lr": 20}."""
    return {f"{part}.{key}": v for part, spec in resolved.items() if isinstance(spec, dict) for key, v in spec.items()}


def from_resolved(data: dict[str, Any], file: str) -> AnyRecipe:
    """Rebuild and check the recipe that `resolved()` returned, after JSON; `file` is named in errors."""
    cls: type[AnyRecipe] = DialogRecipe if "decoding" in data else Recipe
    try:
        recipe = from_json(cls, {"about": "", **data})
        check(recipe)
    except (SchemaError, UserError) as error:
        raise UserError(f"{file} does not hold a valid recipe ({error}).") from None
    return recipe


def override(recipe: R, settings: list[str]) -> R:
    """Return `recipe` with settings such as "train.lr=15" applied, and checked."""
    specs = recipe.specs()
    keys = list(flat(recipe.resolved()))
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise UserError(f'"{setting}" is not a setting: write key=value, for example train.lr=15.')
        if key not in keys:
            raise UserError(f'there is no recipe key "{key}"; {_hint(key, keys, recipe.name)}')
        part, name = key.split(".")
        hint = typing.get_type_hints(type(specs[part]))[name]
        specs[part] = dataclasses.replace(specs[part], **{name: _parse(key, text, hint)})
    changed = dataclasses.replace(recipe, **specs)
    check(changed)
    return changed


def _hint(key: str, keys: list[str], recipe: str) -> str:
    """Return the end of an error message about an unknown key. The part before the dot is not compared."""
    names = {known.partition(".")[2]: known for known in keys}
    if close := difflib.get_close_matches(key.rpartition(".")[2], names, n=1):
        return f'did you mean "{names[close[0]]}"?'
    return f"'highrank recipes {recipe}' lists all keys."


def format_setting(value: Any) -> str:
    """Format a value of a recipe as `override` accepts it."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return str(value)


def check(recipe: AnyRecipe) -> None:
    """Raise a UserError that names the first key whose value cannot be used."""
    for part, spec in recipe.specs().items():
        for name, hint in typing.get_type_hints(type(spec)).items():
            _check_value(f"{part}.{name}", getattr(spec, name), hint)
    if recipe.train.sample_below is not None and recipe.train.sample_below > 1:
        raise UserError(f"train.sample_below must be at most 1, got {recipe.train.sample_below}.")
    if recipe.train.seed >= 2**63:
        raise UserError(f"train.seed must be below 2^63, got {recipe.train.seed}.")
    if isinstance(recipe, DialogRecipe):
        _check_dialog(recipe)
    else:
        _check_language(recipe)


def _check_language(recipe: Recipe) -> None:
    model = recipe.model
    train = recipe.train
    if not model.hidden_sizes or min(model.hidden_sizes) < 1:
        raise UserError(f"model.hidden_sizes must be one positive size per layer, got {model.hidden_sizes}.")
    if model.head == "softmax" and model.tied and model.hidden_sizes[-1] != model.embed_dim:
        raise UserError(
            f"a tied softmax head needs its last hidden size ({model.hidden_sizes[-1]}) equal to model.embed_dim "
            f"({model.embed_dim}): change one of them or set model.tied=false."
        )
    lower = model.lower_components
    if lower and (model.head != "mos" or min(lower) < 1 or sum(lower) >= model.n_components):
        raise UserError(
            f"model.lower_components must be part of the model.n_components ({model.n_components}) of a mos head, "
            f"got {lower} for a {model.head} head."
        )
    if len(lower) >= len(model.hidden_sizes):
        raise UserError(f"model.lower_components has {len(lower)} sizes: at most one per layer below the last.")
    if train.load_penalty and model.head == "softmax":
        raise UserError("train.load_penalty needs a mixture: a softmax head has no prior.")


def _check_dialog(recipe: DialogRecipe) -> None:
    model = recipe.model
    decoding = recipe.decoding
    if model.head == "softmax" and model.attention_size != model.embed_dim:
        raise UserError(
            f"a softmax head needs model.attention_size ({model.attention_size}) equal to model.embed_dim "
            f"({model.embed_dim}): change one of them."
        )
    if decoding.n_best > decoding.beam_size:
        raise UserError(
            f"decoding.n_best ({decoding.n_best}) must be at most decoding.beam_size ({decoding.beam_size})."
        )


MAY_BE_ZERO = (
    "train.weight_decay",
    "train.alpha",
    "train.beta",
    "train.adversarial",
    "train.finetune_adversarial",
    "train.input_noise",
    "train.load_penalty",
    "train.max_over_bptt",
    "train.finetunes",
    "train.seed",
    "decoding.length_penalty",
)


def _check_value(key: str, value: Any, hint: Any) -> None:
    """Check a choice against its Literal, and a number against its range."""
    if typing.get_origin(hint) is Literal:
        if value not in typing.get_args(hint):
            raise UserError(f'{key} cannot be "{value}"{nearest(str(value), typing.get_args(hint))}')
    elif hint not in (int, float, int | None, float | None) or value is None:
        return
    elif "drop" in key:  # the dropout rates and weight_drop
        if not 0 <= value < 1:
            raise UserError(f"{key} must be at least 0 and below 1, got {value}.")
    elif key in MAY_BE_ZERO:
        if not 0 <= value < math.inf:
            raise UserError(f"{key} must be finite and not negative, got {value}.")
    elif not 0 < value < math.inf and not (key == "train.clip" and value == math.inf):  # inf turns clipping off
        raise UserError(f"{key} must be finite and positive, got {value}.")


def _parse(key: str, text: str, hint: Any) -> Any:
    """Convert `text` to a value of the annotated type."""
    if typing.get_origin(hint) is types.UnionType:
        if text.lower() == "none":
            return None
        (hint,) = [a for a in typing.get_args(hint) if a is not type(None)]
    kind = typing.get_origin(hint) or hint
    wanted = {int: "a whole number", float: "a number", bool: "true or false", tuple: "numbers separated by commas"}
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if kind is tuple:
            return tuple(int(part) for part in text.strip("[]()").split(",") if part.strip())
        return kind(text) if kind in (int, float) else text
    except (ValueError, KeyError):
        raise UserError(f'{key} must be {wanted[kind]}, got "{text}".') from None
