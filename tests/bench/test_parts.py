"""Parts share a time, and none stops another. No process is started here."""

import subprocess
from types import SimpleNamespace

import pytest

from highrank.bench import parts

THREE = (("a",), ("b", "--scaling"), ("c",))


@pytest.fixture
def ran(monkeypatch):
    """The commands, and how long each may take; part a takes 40 seconds, b hangs, c breaks at once."""
    now, commands = [0.0], []

    def run(command, *, check, timeout):
        name = command[4]
        commands.append((command[3:], timeout))
        now[0] += {"a": 40, "b": 50, "c": 0}[name]
        if name == "b":
            raise subprocess.TimeoutExpired(command, 1)
        return SimpleNamespace(returncode=1 if name == "c" else 0)

    monkeypatch.setattr(parts.subprocess, "run", run)
    monkeypatch.setattr(parts.time, "monotonic", lambda: now[0])
    return commands


def test_what_is_left_is_shared_by_the_parts_to_come(ran):
    told = []
    assert parts.run_parts(THREE, ["--out", "o"], 100, told.append) == ["b --scaling", "c"]
    assert [(" ".join(command), timeout) for command, timeout in ran] == [
        ("bench a --out o --seconds 50", 160),  # 2 / 4 of 100
        ("bench b --scaling --out o --seconds 40", 120),  # 2 / 3 of 60
        ("bench c --out o --seconds 10", 70),  # all of 10
    ]
    assert told == ["== a  [0 s]", "== b --scaling  [40 s]", "== c  [90 s]"]


def test_without_a_time_nothing_is_cut_short(ran):
    parts.run_parts(THREE, [], None, print)
    assert [(" ".join(command), timeout) for command, timeout in ran] == [
        ("bench a", None),
        ("bench b --scaling", None),
        ("bench c", None),
    ]
