"""Shapes of JSON, and the first thing in which a value differs from its shape: what a file must look like to be read.

A shape is a leaf (words, test), a list of one shape, or an object of shapes by key, where "key?" may be missing or
null. What a shape does not name is left alone.
"""

import math
from collections.abc import Callable
from typing import Any

Leaf = tuple[str, Callable[[Any], bool]]  # "a number", and whether a value is one
LARGEST = 1e300  # JSON holds integers that no float can


class Columns(dict[str, Any]):
    """The shape of an object whose lists are of one length."""


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST


def _perplexity(value: Any) -> bool:
    return value == math.inf or (_number(value) and value >= 1)  # infinite, of a run that diverged


NUMBER: Leaf = "a number", lambda value: isinstance(value, float) or _number(value)  # infinite or not one at all, too
AMOUNT: Leaf = "a number of at least 0", lambda value: _number(value) and value >= 0
WHOLE: Leaf = "a whole number of at least 0", lambda value: _number(value) and isinstance(value, int) and value >= 0
PERPLEXITY: Leaf = "a number of at least 1", _perplexity
DRAWN: Leaf = "a number of at least 1, or a word", lambda value: isinstance(value, str) or _perplexity(value)
TEXT: Leaf = "text", lambda value: isinstance(value, str)
YES_OR_NO: Leaf = "true or false", lambda value: isinstance(value, bool)
SEED: Leaf = "a number or text", lambda value: isinstance(value, str) or _number(value)


def wrong(value: Any, shape: Any, where: str = "") -> str:
    """it lacks seed; its stages[0] lacks seconds; its curve.epoch[3] is not a number ...: nothing if all is right."""
    name = f"its {where}" if where else "it"
    if isinstance(shape, tuple):
        words, holds = shape
        return "" if holds(value) else f"{name} is not {words}"
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{name} is not a list{' of objects' if isinstance(shape[0], dict) else ''}"
        parts = (wrong(part, shape[0], f"{where}[{i}]") for i, part in enumerate(value))
        return next((said for said in parts if said), "")
    if not isinstance(value, dict):
        return f"{name} is not an object"
    missing = [key for key in shape if not key.endswith("?") and key not in value]
    if missing:
        return f"{name} lacks {', '.join(sorted(missing))}"
    for key, below in shape.items():
        found = value.get(key.rstrip("?"))
        if found is None and key.endswith("?"):
            continue
        if said := wrong(found, below, f"{where}.{key}".strip(".?")):
            return said
    unequal = isinstance(shape, Columns) and len({len(value[key]) for key in shape}) > 1
    return f"{name} has lists of unequal length" if unequal else ""
