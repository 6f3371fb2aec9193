"""metrics.jsonl and TensorBoard across several starts of a run."""

import json
import math
import resource
import sys

import pytest

from highrank.errors import UserError
from highrank.runs.metrics import MetricsWriter, read_epochs
from highrank.training.callbacks import EpochMetrics, UpdateMetrics


def epoch_metrics(**changes):
    values = {
        "epoch": 1, "stage": "train", "averaged": False, "step": 1, "train_nll": 5.0, "train_ppl": 148.4,
        "valid_nll": 5.0, "valid_ppl": 148.4, "best_valid_ppl": 148.4, "best_epoch": 1, "skipped": 0,
        "tokens_per_second": 100.0, "seconds": 1.0,
    }  # fmt: skip
    return EpochMetrics(**(values | changes))


def update_metrics(step, nll=1.0):
    return UpdateMetrics(step=step, epoch=0, row=step, tokens=4 * step, nll=nll, epoch_nll=math.inf)


def write(folder, keep, steps):
    """Write one line per step, as one start of a run does. Return the sizes before and after."""
    metrics = MetricsWriter(folder, keep, 0)
    sizes = [metrics.size()]
    for step in steps:
        metrics.write(update_metrics(step))
    sizes.append(metrics.size())
    metrics.close()
    return sizes


def steps(folder):
    return [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_lines_after_the_checkpoint_are_dropped(tmp_path):
    _, size = write(tmp_path, 0, [1, 2])
    write(tmp_path, size, [3, 4])  # killed before the next checkpoint
    assert write(tmp_path, size, [5])[0] == size
    assert steps(tmp_path) == [1, 2, 5]


def test_a_pause_before_the_first_line_does_not_restore_dropped_lines(tmp_path):
    _, size = write(tmp_path, 0, [1])
    write(tmp_path, size, [2, 3])  # killed
    paused_size, _ = write(tmp_path, size, [])
    assert paused_size == size
    write(tmp_path, paused_size, [4, 5])  # killed
    write(tmp_path, paused_size, [6])
    assert steps(tmp_path) == [1, 6]


def test_epochs_are_read_back(tmp_path):
    metrics = MetricsWriter(tmp_path, 0, 0)
    first, second = epoch_metrics(), epoch_metrics(epoch=2, averaged=True, average_length=7, valid_ppl=math.inf)
    for line in (first, update_metrics(3), second):
        metrics.write(line)
    metrics.close()
    assert read_epochs(tmp_path / "metrics.jsonl") == [first, second]


def test_a_line_cut_short_by_a_kill_is_ignored(tmp_path):
    metrics = MetricsWriter(tmp_path, 0, 0)
    metrics.write(epoch_metrics())
    metrics.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "epoch", "ep')
    assert read_epochs(tmp_path / "metrics.jsonl") == [epoch_metrics()]


@pytest.mark.parametrize("line", [b"\xff\xfe\n", b"hello\n", b"[1]\n", b'{"kind": "epoch", "epoch": 1}\n'])
def test_a_damaged_line_is_an_error(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_bytes(line)
    with pytest.raises(UserError, match=r"metrics\.jsonl"):
        read_epochs(tmp_path / "metrics.jsonl")


def test_updates_are_written_at_intervals(tmp_path, monkeypatch):
    """By a clock that advances one second per update, every 5 seconds."""
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr("highrank.runs.metrics.UPDATE_EVERY_SECONDS", 5.0)
    metrics = MetricsWriter(tmp_path, 0, 0)
    for step in range(1, 17):
        now[0] = float(step)
        metrics.update_done(update_metrics(step))
    metrics.epoch_done(epoch_metrics(step=16))
    metrics.close()
    assert steps(tmp_path) == [5, 10, 15, 16]


def test_tensorboard_drops_events_after_the_checkpoint(tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for known, run_steps in ((0, (1, 2, 3)), (1, (2, 3, 4))):  # killed after three steps, resumed from the first
        metrics = MetricsWriter(tmp_path, 0, known)
        for step in run_steps:
            metrics.write(update_metrics(step, step + known / 10))
        metrics.write(update_metrics(9, math.inf))
        metrics.close()
        (file,) = (tmp_path / "tensorboard").glob("*tfevents*.*.*")
        file.rename(file.with_name(f"events.out.tfevents.{known}"))  # fixes the order of two files of the same second
    board = events.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert board.Tags()["scalars"] == ["train/nll"]
    points = [(event.step, round(event.value, 3)) for event in board.Scalars("train/nll")]
    assert points == [(1, 1.0), (2, 2.1), (3, 3.1), (4, 4.1)]


def test_without_tensorboard_the_lines_are_still_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    write(tmp_path, 0, [1, 2])
    assert steps(tmp_path) == [1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(UserError, match=r"metrics\.jsonl"):
        MetricsWriter(tmp_path / "missing", 0, 0)


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path, monkeypatch):
    """Here as a limit on the size of files. Closing the file, which tries to write the line once more, is no error."""
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    metrics = MetricsWriter(tmp_path, 0, 0)
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, most))
    try:
        with pytest.raises(UserError, match=r"metrics\.jsonl"):
            metrics.write(update_metrics(1))
        metrics.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
