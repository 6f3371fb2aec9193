"""Tables that fit the screen, progress on and off a terminal, strict JSON."""

import io
import json
import math
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from highrank.cli import console


@pytest.fixture
def screen(monkeypatch):
    def make(width=100, terminal=False):
        fake = Console(file=io.StringIO(), width=width, force_terminal=terminal)
        monkeypatch.setattr(console, "out", fake)
        monkeypatch.setattr(console, "err", fake)
        return fake.file

    return make


def test_a_narrow_table_keeps_every_digit(screen):
    file = screen(width=24)
    table = Table("KL found", "bound", "parameters")
    table.add_row("1.84e-01", "7.8e-04", "21,500,620")
    console.print_table(table)
    cells = [line.split("│")[1:-1] for line in file.getvalue().splitlines() if line.startswith("│")]
    numbers = ["".join(part.strip() for part in column) for column in zip(*cells, strict=True)]
    assert numbers == ["1.84e-01", "7.8e-04", "21,500,620"]


def test_progress_on_a_terminal_shows_the_name_of_the_stage(screen):
    file = screen(terminal=True)
    with console.progress() as on_stage:
        on_stage("reading runs/[bold]", 40, 80)
        on_stage("one large step", 0, None)
    assert "runs/[bold]" in file.getvalue()  # a folder's name is not markup
    assert "one large step" in file.getvalue()


def test_progress_off_a_terminal_is_a_line_now_and_then(screen, monkeypatch):
    file = screen()
    now = [0.0]
    monkeypatch.setattr(console.time, "perf_counter", lambda: now[0])
    with console.progress() as on_stage:
        for second in range(0, 101, 10):
            now[0] = float(second)
            on_stage("counting", second, 100)
        on_stage("counting", 0, 100)  # the next point of a search
        now[0] = 130.0
        on_stage("counting", 20, 100)
        for done in range(3):
            on_stage("one large step", done, None)
    *lines, last = file.getvalue().splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "counting: 30%",
        "counting: 60%",
        "counting: 90%",
        "counting: 20%",
    ]
    assert [line.split()[-3] for line in lines] == ["70", "40", "10", "120"]  # seconds left
    assert last == "one large step"


def test_json_is_strict(capsys):
    console.print_json({"a": [math.inf, 1.5], "b": (math.nan, "x")})
    assert json.loads(capsys.readouterr().out) == {"a": [None, 1.5], "b": [None, "x"]}


@pytest.mark.parametrize("as_json", [True, False])
def test_written_files_are_listed_on_standard_error_next_to_json(as_json, capsys):
    console.print_written(Path("runs/[a]:cat:"), (Path("table.md"), "a remark"), as_json=as_json)
    printed = capsys.readouterr()
    text = printed.err if as_json else printed.out
    assert "runs/[a]:cat:" in text  # neither markup nor an emoji
    assert "table.md" in text
    assert printed.out + printed.err == text
