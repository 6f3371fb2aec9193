"""metrics.jsonl across starts: what a checkpoint does not know of is dropped, once and for all."""

import json
import math

import pytest

from highrank.errors import UserError
from highrank.runs.folder import Run
from highrank.runs.metrics import Metrics


def lines(folder):
    return [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def write(folder, keep, steps):
    """One start of a run: the size when it began, and after its lines."""
    metrics = Metrics(folder, keep, 0)
    sizes = [metrics.size()]
    for step in steps:
        metrics.write({"kind": "train", "step": step}, step)
    sizes.append(metrics.size())
    metrics.close()
    return sizes


def test_what_came_after_the_checkpoint_is_dropped(tmp_path):
    _, known = write(tmp_path, 0, [1, 2])
    write(tmp_path, known, [3, 4])  # and killed before a checkpoint
    assert write(tmp_path, known, [5])[0] == known
    assert lines(tmp_path) == [1, 2, 5]


def test_a_pause_before_the_first_line_does_not_bring_dropped_lines_back(tmp_path):
    _, known = write(tmp_path, 0, [1])
    write(tmp_path, known, [2, 3])  # killed
    told, _ = write(tmp_path, known, [])  # paused at once: a checkpoint of this size
    assert told == known
    write(tmp_path, told, [4, 5])  # killed
    write(tmp_path, told, [6])
    assert lines(tmp_path) == [1, 6]


def test_numbers_that_json_has_none_for_are_words(tmp_path):
    metrics = Metrics(tmp_path, 0, 0)
    metrics.write({"kind": "epoch", "valid_ppl": float("inf"), "nll": float("nan")}, 1)
    metrics.close()
    told = json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=lambda word: pytest.fail(word))
    assert told == {"kind": "epoch", "valid_ppl": "inf", "nll": "nan"}


def test_tensorboard_gets_the_numbers_and_forgets_what_the_checkpoint_does_not_know_of(tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for known, steps in ((0, (1, 2, 3)), (1, (2, 3, 4))):  # killed after three steps, resumed from the first
        metrics = Metrics(tmp_path, 0, known)
        for step in steps:
            metrics.write({"kind": "epoch", "epoch": step, "ppl": step + known / 10, "nll": math.inf}, step)
        metrics.close()
        (file,) = (tmp_path / "tensorboard").glob("*tfevents*.*.*")
        file.rename(file.with_name(f"events.out.tfevents.{known}"))  # in their order, within one second too
    told = events.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert told.Tags()["scalars"] == ["epoch/ppl"]
    points = [(event.step, round(event.value, 3)) for event in told.Scalars("epoch/ppl")]
    assert points == [(1, 1.0), (2, 2.1), (3, 3.1), (4, 4.1)]


def test_half_a_line_is_none(tmp_path):
    """A kill may leave one; whoever reads the run before it goes on passes it over, and a whole one is never lost."""
    write(tmp_path, 0, [1, 2])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "st')
    assert [line["step"] for line in Run(tmp_path).metrics()] == [1, 2]
    (tmp_path / "metrics.jsonl").write_text('{"kind": "train", "st\n')
    with pytest.raises(UserError, match="is damaged"):
        Run(tmp_path).metrics()


def test_a_folder_that_cannot_be_written(tmp_path):
    with pytest.raises(UserError, match="cannot write"):
        Metrics(tmp_path / "missing", 0, 0)
