"""Dataclasses to and from JSON: what is written is read back, and an error names the key."""

import json
from dataclasses import dataclass, field
from typing import Literal

import pytest

from highrank.errors import UserError
from highrank.files import write_json
from highrank.schema import SchemaError, from_json, read_as, to_json


@dataclass(frozen=True)
class Inner:
    name: str
    size: int | None = None


@dataclass(frozen=True)
class Outer:
    kind: Literal["a", "b"]
    rate: float
    flag: bool
    inner: list[Inner]
    pair: tuple[int, str]
    counts: dict[str, int] = field(default_factory=dict)


OUTER = Outer("a", 0.5, True, [Inner("x"), Inner("y", 3)], (1, "one"), {"n": 2})


def test_what_is_written_is_read_back():
    assert from_json(Outer, json.loads(json.dumps(to_json(OUTER)))) == OUTER


def test_missing_keys_take_their_default():
    data = to_json(OUTER)
    del data["counts"]
    assert from_json(Outer, data).counts == {}


def test_a_whole_number_is_a_float():
    assert from_json(float, 3) == 3


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"kind": "c"}, "kind"),
        ({"rate": "fast"}, "rate"),
        ({"rate": True}, "rate"),
        ({"flag": 1}, "flag"),
        ({"inner": [{"name": "x"}, {"size": 1}]}, r"inner\[1\]\.name"),
        ({"inner": [{"name": "x", "size": 1.5}]}, r"inner\[0\]\.size"),
        ({"inner": {}}, "inner"),
        ({"pair": [1]}, "pair"),
        ({"pair": [1, 2]}, r"pair\[1\]"),
        ({"counts": {"n": "two"}}, r"counts\.n"),
        ({"other": 1}, "other"),
    ],
    ids=str,
)
def test_an_error_names_the_key(change, key):
    with pytest.raises(SchemaError, match=f'"{key}"'):
        from_json(Outer, to_json(OUTER) | change)


def test_a_file_with_an_unknown_key_may_be_from_another_version(tmp_path):
    write_json(tmp_path / "inner.json", {"name": "x", "colour": "red"})
    with pytest.raises(UserError, match=r"version.*colour"):
        read_as(Inner, tmp_path / "inner.json", "inner")


def test_a_missing_key_is_named():
    data = to_json(OUTER)
    del data["rate"]
    with pytest.raises(SchemaError, match='"rate"'):
        from_json(Outer, data)
