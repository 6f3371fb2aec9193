"""Dataclasses to and from JSON: one frozen dataclass per file format describes, checks, reads and writes it.

    @dataclass(frozen=True)
    class Stage:
        stage: int
        seconds: float

    from_json(Stage, {"stage": 0})       # SchemaError: "seconds" is missing

Field types may be int, float, str, bool, Any, Literal, `X | None`, list, tuple, dict[str, X] and other dataclasses.
"""

import dataclasses
import types
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from highrank.errors import UserError
from highrank.files import read_json

T = TypeVar("T")


class SchemaError(ValueError):
    """A value does not have the shape that its dataclass describes; the message names the key."""


class UnknownKeyError(SchemaError):
    """A dataclass has no such field."""


def from_json(cls: type[T], data: Any) -> T:
    """Build a `cls` from parsed JSON. Missing keys take the field's default; unknown keys are an error."""
    value: T = _build(cls, data, key="")
    return value


def read_as(cls: type[T], path: Path, what: str, fix: str = "restore or recreate it") -> T:
    """Read a JSON file as a `cls`. If it is not one, raise a UserError that names the file, the key and the fix."""
    try:
        return from_json(cls, read_json(path, what))
    except UnknownKeyError as error:
        raise UserError(f"the {what} at {path} may be from another version of highrank ({error}): {fix}.") from None
    except SchemaError as error:
        raise UserError(f"the {what} at {path} is damaged ({error}): {fix}.") from None


def to_json(value: Any) -> Any:
    """Turn a dataclass (or a list or dict of them) into plain lists and dicts for `json.dumps`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: to_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(part) for part in value]
    return value


def _build(hint: Any, value: Any, key: str) -> Any:
    """Build a value of the type `hint`; `key` is its place in the JSON, for errors."""
    origin = get_origin(hint)
    arguments = get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        return _build_union(arguments, value, key)
    if origin is Literal:
        return _check(value in arguments, value, f"one of {', '.join(map(str, arguments))}", key)
    if origin is list:
        _check(isinstance(value, list), value, "a list", key)
        return [_build(arguments[0], part, f"{key}[{i}]") for i, part in enumerate(value)]
    if origin is tuple:
        _check(isinstance(value, list), value, "a list", key)
        hints = [arguments[0]] * len(value) if arguments[-1] is ... else list(arguments)
        _check(len(hints) == len(value), value, f"a list of {len(hints)}", key)
        return tuple(_build(part, item, f"{key}[{i}]") for i, (part, item) in enumerate(zip(hints, value, strict=True)))
    if origin is dict:
        _check(isinstance(value, dict), value, "an object", key)
        return {name: _build(arguments[1], item, _join(key, name)) for name, item in value.items()}
    if dataclasses.is_dataclass(hint):
        return _build_dataclass(hint, value, key)
    if hint is float:
        return _check(isinstance(value, int | float) and not isinstance(value, bool), value, "a number", key)
    if hint is int:
        return _check(isinstance(value, int) and not isinstance(value, bool), value, "a whole number", key)
    names = {str: "text", bool: "true or false"}
    return _check(isinstance(value, hint), value, names.get(hint, str(hint)), key)


def _build_union(options: tuple[Any, ...], value: Any, key: str) -> Any:
    if value is None and type(None) in options:
        return None
    errors = []
    for option in options:
        if option is not type(None):
            try:
                return _build(option, value, key)
            except SchemaError as error:
                errors.append(error)
    raise errors[0]


def _build_dataclass(cls: Any, value: Any, key: str) -> Any:
    _check(isinstance(value, dict), value, "an object", key)
    hints = get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    for name in value:
        if name not in fields:
            raise UnknownKeyError(f'"{_join(key, name)}" is not a known key')
    built = {}
    for name, field in fields.items():
        if name in value:
            built[name] = _build(hints[name], value[name], _join(key, name))
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise SchemaError(f'"{_join(key, name)}" is missing')
    return cls(**built)


def _check(holds: bool, value: Any, wanted: str, key: str) -> Any:
    """Return `value`, or raise a SchemaError that says what was wanted instead."""
    if not holds:
        raise SchemaError(f'"{key}" must be {wanted}' if key else f"it must be {wanted}")
    return value


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name
