"""Parts share a time, and none stops another."""

import os
import signal
import subprocess
import sys

import pytest

from highrank.bench import parts

THREE = (("a",), ("b", "--scaling"), ("c",))


@pytest.fixture
def ran(monkeypatch):
    """The commands, and how long each may take; part a takes 40 seconds, b hangs, c breaks at once."""
    now, commands = [0.0], []

    def run(command, timeout):
        name = command[4]
        commands.append((command[3:], timeout))
        now[0] += {"a": 40, "b": 50, "c": 0}[name]
        return 0 if name == "a" else 1

    monkeypatch.setattr(parts, "run_part", run)
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


def test_a_part_has_its_exit_code_and_ends_in_time():
    assert parts.run_part([sys.executable, "-c", "raise SystemExit(3)"], None) == 3
    assert parts.run_part([sys.executable, "-c", "import time; time.sleep(600)"], 0.1) == 1


PART = """
import signal, sys, time
signal.signal(signal.SIGINT, {handler})
print("at work", flush=True)
time.sleep(600)
"""
WHOLE = """
import sys
from highrank.bench import parts
parts.ENDS_WITHIN = float(sys.argv[2])
try:
    parts.run_part([sys.executable, "-c", sys.argv[1]], None)
except KeyboardInterrupt:
    print("said by the whole")
    sys.exit(130)
"""


@pytest.mark.parametrize(
    ("handler", "seconds", "said"),
    [("lambda *_: sys.exit(print('said by the part') or 130)", 60, "said by the part\n"),  # as every command does
     ("lambda *_: sys.exit(1)", 60, "said by the whole\n"),
     ("signal.SIG_IGN", 0.1, "said by the whole\n")],
)  # fmt: skip
def test_ctrl_c_is_told_once(handler, seconds, said):
    """To both processes, as a terminal sends it."""
    command = [sys.executable, "-c", WHOLE, PART.format(handler=handler), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout.readline() == "at work\n"
        os.killpg(process.pid, signal.SIGINT)
        assert process.communicate() == (said, None)
    assert process.returncode == 130
