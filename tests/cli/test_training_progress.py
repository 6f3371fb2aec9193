"""What a person sees while a model trains: lines that fit 80 columns and can be searched."""

import io
import math
import re

import pytest
from rich.console import Console

from highrank.cli import training_progress as progress
from highrank.cli.training_progress import watch

EPOCH = {
    "epoch": 79, "stage": "train", "averaged": True, "train_ppl": 45.35, "valid_ppl": 69.44, "best_valid_ppl": 69.44,
    "best_epoch": 79, "skipped": 0, "tokens_per_second": 171_227.0, "seconds": 1090.0,
}  # fmt: skip


def console(width=80, **options):
    return Console(file=io.StringIO(), width=width, **options)


def told(**changes):
    """The line of an epoch, as a screen of 80 columns shows it."""
    screen = console()
    with watch(screen, None, None) as listener:
        listener.epoch_done(EPOCH | changes)
    return screen.file.getvalue()


def test_an_epoch_is_one_line():
    assert told() == "epoch  79 averaged: train  45.35, valid  69.44, 171k tok/s, 18m10s, new best\n"
    assert told(epoch=80, best_valid_ppl=169.44).endswith(", best 169.44\n")
    first = told(epoch=1, averaged=False, train_ppl=1234.5, best_epoch=1, tokens_per_second=840.0, seconds=5.0)
    assert first == "epoch   1: train 1234.50, valid  69.44,  840 tok/s,     5s, new best\n"
    diverged = told(train_ppl=math.exp(50.0), valid_ppl=math.exp(690.0), best_valid_ppl=math.inf, best_epoch=1)
    assert "train 5.18e+21, valid 4.6e+299, " in diverged  # not all of its digits
    assert diverged.endswith(", best inf\n")
    assert told(skipped=2).endswith(", new best, 2 windows skipped\n")  # longer, and still one line of a log


@pytest.mark.parametrize("stage", ["train", "finetune-1", "finetune-3"])
@pytest.mark.parametrize("averaged", [True, False])
@pytest.mark.parametrize("epoch", [79, 999])
@pytest.mark.parametrize("seconds", [1090.0, 359_000.0])
def test_it_fits_whatever_the_stage(stage, averaged, epoch, seconds):
    line = told(stage=stage, averaged=averaged, epoch=epoch, seconds=seconds, best_epoch=7, best_valid_ppl=69.4)
    assert len(line) <= 80 + len("\n")
    assert (f" {stage}: " in line) == (stage != "train")


@pytest.mark.parametrize(
    ("seconds", "text"), [(-3.0, "0s"), (59.4, "59s"), (59.6, "1m00s"), (3599.7, "1h00m"), (4000.0, "1h06m")]
)
def test_durations(seconds, text):
    assert progress._duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0.0, "0"), (999.4, "999"), (999.5, "1.0k"), (9949.0, "9.9k"), (9950.0, "10k"), (171_227.0, "171k")],
)
def test_speeds(count, text):
    assert progress._thousands(count) == text


def test_lines_of_a_log_are_never_broken(monkeypatch):
    monkeypatch.setattr(progress, "PLAIN_LINE_EVERY_SECONDS", 0.0)
    log = console(width=20)
    with watch(log, 1000, 3600.0) as listener:
        listener.epoch_started(123, 1127, 0)
        listener.window_done(600, 7200, math.log(45.1))
        listener.epoch_done(EPOCH)
        listener.message("a remark of more than twenty columns")
    assert len(log.file.getvalue().splitlines()) == 3


@pytest.mark.parametrize(("terminal", "width"), [(False, 80), (True, 80), (True, 60)])
def test_progress_within_an_epoch_fits_too(terminal, width, monkeypatch):
    monkeypatch.setattr(progress, "PLAIN_LINE_EVERY_SECONDS", 0.0)
    screen = console(width, force_terminal=terminal, color_system=None, legacy_windows=False)
    with watch(screen, 1000, 3600.0) as listener:
        listener.epoch_started(123, 1127, 0)
        for row in (500, 600):
            listener.window_done(row, 12 * row, math.log(45.1))
        listener.message("a remark")
    lines = re.sub(r"\x1b\[[?\d]*[A-Za-z]", "", screen.file.getvalue()).splitlines()
    shown = [line for line in lines if "tok/s" in line]
    assert shown
    assert max(map(len, shown)) <= width
    assert not any("…" in line for line in shown)
    assert re.search(r"ppl 45\.1.* left .*in all" if terminal else r"ppl 45\.1, about \d+\w+ left in all", shown[-1])


@pytest.mark.parametrize("began", [0, 500])
def test_the_time_left_counts_what_this_start_has_done(began, monkeypatch):
    """A resumed run may begin in the middle of an epoch, which somebody else's time has paid for."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    with watch(console(), 3, None) as listener:
        listener.epoch_started(2, 1000, began)
        now[0] = 10.0
        assert listener.left(began + 100) == {0: "3m10s", 500: "2m20s"}[began]  # 10 s for every 100 rows
        now[0] += (900 - began) / 10
        listener.epoch_started(3, 1000, 0)
        assert listener.left(0) == "1m40s"
