"""What the verbs share: small conversions, values as --set takes them, tables that fit the screen."""

import io

import pytest
import torch
from rich.console import Console
from rich.table import Table

from highrank.cli import options
from highrank.cli.options import find_device, parse_bytes, parse_seconds, plain
from highrank.errors import UserError
from highrank.recipes import RECIPES, flat, override


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("25m", 1500), ("1.5h", 5400), ("2H", 7200), ("0.5", 0.5)]
)
def test_seconds(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "soon", "0", "-5m", "nan", "inf", "1e400s", "5d"])
def test_what_is_no_time(text):
    with pytest.raises(UserError, match=f'"{text}" is not a time: write for example 90s, 25m or 2h.'):
        parse_seconds(text)


@pytest.mark.parametrize(("text", "size"), [("15MB", 15_000_000), ("512kB", 512_000), ("1.5gb", 1_500_000_000)])
def test_bytes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "MB", "15", "15XB", "99kB", "-1MB", "nanMB", "infMB"])
def test_what_is_no_size(text):
    with pytest.raises(UserError, match=f'"{text}" is not a size of at least 100kB: write for example 15MB.'):
        parse_bytes(text)


def test_values_as_a_person_writes_them():
    values = [(960, 620), [1, 2], 0.25, 1e-06, 20.0, None, "mos", True, 5]
    assert [plain(v) for v in values] == ["960,620", "1,2", "0.25", "1e-06", "20", "none", "mos", "true", "5"]


def test_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [str(find_device(name)) for name in ("auto", "cpu", "cuda", "cuda:1")] == ["cuda", "cpu", "cuda", "cuda:1"]
    with pytest.raises(UserError, match=r'"cuda:2" is not available here \(2 CUDA devices found\): use --device cpu'):
        find_device("cuda:2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert str(find_device("auto")) == "cpu"
    for name, problem in (("cuda", "not available here"), ("gpu", "there is no device"), ("meta", "not supported")):
        with pytest.raises(UserError, match=problem):
            find_device(name)


def printed(monkeypatch, table, width):
    console = Console(file=io.StringIO(), width=width)
    monkeypatch.setattr(options, "out", console)
    options.print_fitting(table, left=1)
    return console.file.getvalue()


def wide():
    table = Table("who", *(f"column{i}" for i in range(12)), "empty", title="a title")
    for name in ("first", "second"):
        table.add_row(name, *(f"{name}{i}" for i in range(12)), "-")
    return table


def test_a_table_that_is_too_wide_goes_on_below_itself(monkeypatch):
    text = printed(monkeypatch, wide(), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("a title") == 1
    assert text.count("who") == text.count("┏━") == 2
    assert all(f"column{i}" in text and f"second{i}" in text for i in range(12))


def test_a_table_that_fits_stays_one_without_columns_that_say_nothing(monkeypatch):
    text = printed(monkeypatch, wide(), 300)
    assert text.count("who") == 1
    assert "column11" in text
    assert "empty" not in text


@pytest.mark.parametrize("name", RECIPES)
def test_what_is_shown_of_a_recipe_can_be_set(name):
    recipe = RECIPES[name]
    shown = [f"{key}={options.plain(value)}" for key, value in flat(recipe.resolved()).items()]
    assert override(recipe, shown) == recipe


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_of_stages(terminal, monkeypatch):
    file, long = io.StringIO(), " ".join(["one large step"] * 10)
    monkeypatch.setattr(options, "err", Console(file=file, force_terminal=terminal, width=100))
    monkeypatch.setattr(options, "LINE_EVERY_SECONDS", 0.0)
    with options.watching_stages() as tell:
        for done in (0, 40, 80):
            tell("runs/[bold] reads", done, 80)  # a folder's name is no markup
        tell(long, 0, None)
    if terminal:
        assert "runs/[bold] reads" in file.getvalue()
        assert "one large step" in file.getvalue()
    else:
        assert file.getvalue() == f"runs/[bold] reads: 50%, about 0 s left\n{long}\n"
