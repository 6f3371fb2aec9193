"""The progress of training: lines that fit 80 columns, and the time left."""

import io
import itertools
import math
import re

import pytest
from rich.console import Console

from highrank.cli import training_progress
from highrank.cli.training_progress import epoch_line, show_training
from highrank.training.callbacks import EpochMetrics, UpdateMetrics


def metrics(**changes):
    values = {
        "epoch": 79, "stage": "train", "averaged": True, "step": 1, "train_nll": 3.8, "train_ppl": 45.35,
        "valid_nll": 4.2, "valid_ppl": 69.44, "best_valid_ppl": 69.44, "best_epoch": 79, "skipped": 0,
        "tokens_per_second": 171_227.0, "seconds": 1090.0,
    }  # fmt: skip
    return EpochMetrics(**(values | changes))


def update(row, tokens, epoch_nll):
    return UpdateMetrics(step=1, epoch=0, row=row, tokens=tokens, nll=epoch_nll, epoch_nll=epoch_nll)


def console(width=80, **options):
    return Console(file=io.StringIO(), width=width, **options)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "epoch  79 averaged: train  45.35, valid  69.44, 171k tok/s, 18m10s, new best"),
        (
            {"epoch": 80, "averaged": False, "best_valid_ppl": 169.44, "tokens_per_second": 840.0, "seconds": 5.0},
            "epoch  80: train  45.35, valid  69.44,  840 tok/s,     5s, best 169.44",
        ),
        (
            {"stage": "finetune-1", "skipped": 2},
            "epoch  79 finetune-1: train  45.35, valid  69.44, 171k tok/s, 18m10s, new best, 2 windows skipped",
        ),
    ],
)
def test_an_epoch_is_one_line(changes, line):
    assert epoch_line(metrics(**changes)) == line


def test_an_epoch_on_characters_shows_bits():
    line = epoch_line(metrics(train_ppl=2.0, valid_ppl=4.0, best_epoch=1, best_valid_ppl=math.sqrt(8)), "char")
    assert line == "epoch  79 averaged: train  1.000, valid  2.000 bpc, 171k tok/s, 18m10s, best 1.500"


def test_a_diverged_perplexity_is_short():
    line = epoch_line(
        metrics(train_ppl=math.exp(50.0), valid_ppl=math.exp(690.0), best_epoch=1, best_valid_ppl=math.inf)
    )
    assert "train 5.18e+21, valid 4.6e+299, " in line


@pytest.mark.parametrize("stage", ["train", "finetune-1", "finetune-3"])
@pytest.mark.parametrize("epoch", [79, 999])
@pytest.mark.parametrize("seconds", [1090.0, 359_000.0])
def test_an_epoch_fits_80_columns(stage, epoch, seconds):
    assert len(epoch_line(metrics(stage=stage, epoch=epoch, seconds=seconds, best_epoch=7, best_valid_ppl=69.4))) <= 80


@pytest.mark.parametrize(
    ("seconds", "text"), [(-3.0, "0s"), (59.4, "59s"), (59.6, "1m00s"), (3599.7, "1h00m"), (4000.0, "1h06m")]
)
def test_durations(seconds, text):
    assert training_progress._duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0.0, "0"), (999.4, "999"), (999.5, "1.0k"), (9949.0, "9.9k"), (9950.0, "10k"), (171_227.0, "171k")],
)
def test_speeds(count, text):
    assert training_progress._thousands(count) == text


def test_lines_of_a_log_are_not_wrapped(monkeypatch):
    monkeypatch.setattr(training_progress, "LINE_EVERY_SECONDS", 0.0)
    log = console(width=20)
    with show_training(log, 1000, 3600.0) as callbacks:
        callbacks.epoch_started(123, 1127, 0)
        callbacks.update_done(update(600, 7200, math.log(45.1)))
        callbacks.epoch_done(metrics())
        callbacks.message("a message of more than [twenty] columns")
    lines = log.file.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[2] == "a message of more than [twenty] columns"


@pytest.mark.parametrize(("terminal", "width"), [(False, 80), (True, 80), (True, 60)])
def test_progress_within_an_epoch_fits_the_screen(terminal, width, monkeypatch):
    monkeypatch.setattr(training_progress, "LINE_EVERY_SECONDS", 0.0)
    clock = itertools.count(0.0, 0.01)  # a real clock would make the speed, and so the width, depend on the machine
    monkeypatch.setattr(training_progress.time, "perf_counter", lambda: next(clock))
    screen = console(width, force_terminal=terminal, color_system=None, legacy_windows=False)
    with show_training(screen, 1000, 3600.0) as callbacks:
        callbacks.epoch_started(123, 1127, 0)
        for row in (500, 600):
            callbacks.update_done(update(row, 12 * row, math.log(45.1)))
        callbacks.message("a message")
    lines = re.sub(r"\x1b\[[?\d]*[A-Za-z]", "", screen.file.getvalue()).splitlines()
    shown = [line for line in lines if "tok/s" in line]
    assert shown
    assert max(map(len, shown)) <= width
    assert not any("…" in line for line in shown)
    assert "ppl 45.1" in shown[-1]


@pytest.mark.parametrize(("first_row", "left"), [(0, "3m10s"), (500, "2m20s")])
def test_the_time_left_is_estimated_from_this_start_only(first_row, left, monkeypatch):
    """A resumed run may start within an epoch. Here, 100 rows take 10 seconds."""
    now = [0.0]
    monkeypatch.setattr(training_progress.time, "perf_counter", lambda: now[0])
    with show_training(console(), 3, None) as callbacks:
        callbacks.epoch_started(2, 1000, first_row)
        now[0] = 10.0
        assert callbacks.run_left(first_row + 100) == left
        now[0] += (900 - first_row) / 10
        callbacks.epoch_started(3, 1000, 0)
        assert callbacks.run_left(0) == "1m40s"


@pytest.mark.parametrize(
    ("rows", "on_cpu", "messages"), [(1000, True, 1), (100_000, True, 2), (100_000, False, 1)], ids=str
)
def test_the_time_of_an_epoch_is_announced_once(rows, on_cpu, messages, monkeypatch):
    """After a slow first update, 100 rows take 4 seconds; more than 15 minutes are worth a warning on a CPU."""
    now = [0.0]
    monkeypatch.setattr(training_progress.time, "perf_counter", lambda: now[0])
    log = console()
    with show_training(log, None, None, on_cpu=on_cpu) as callbacks:
        callbacks.epoch_started(1, rows, 0)
        now[0] = 9.0
        for row in (10, 110, 210):
            callbacks.update_done(update(row, row, 1.0))
            now[0] += 4.0
    lines = log.file.getvalue().splitlines()
    assert len([line for line in lines if not line.startswith("  ")]) == messages
    assert lines[0].split()[-1] == ("40s" if rows == 1000 else "1h06m")


@pytest.mark.parametrize(("on_cpu", "messages"), [(True, 2), (False, 0)])
def test_a_very_long_first_update_on_a_cpu_is_enough_for_a_warning(on_cpu, messages, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(training_progress.time, "perf_counter", lambda: now[0])
    log = console()
    with show_training(log, None, None, on_cpu=on_cpu) as callbacks:
        callbacks.epoch_started(1, 1000, 100)  # resumed within an epoch
        now[0] = 20.0
        callbacks.update_done(update(110, 10, 1.0))
    lines = log.file.getvalue().splitlines()
    assert len(lines) == messages
    assert not lines or lines[0].split()[-1] == "33m20s"
