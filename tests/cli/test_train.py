"""`highrank train`: new runs, exact resume, Ctrl-C, and errors."""

import dataclasses
import json
import math
import os
import pty
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from helpers import PROCESS_TIMEOUT, as_process, fails, highrank, settings
from highrank.runs import checkpoint as checkpoints
from highrank.runs.folder import Run

RESUME = ("train", "ptb-mos", "--out", "run", "--resume")


def state(folder: Path):
    return checkpoints.read(folder).state


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


# --- new runs -------------------------------------------------------------------------------------------------------


def test_train_writes_a_summary(place, trained):
    summary = json.loads((trained / "summary.json").read_text())
    assert summary["epochs"] == 1
    assert summary["outcome"] == "max-epochs"


def test_tensorboard_shows_the_epochs(trained):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    board = events.EventAccumulator(str(trained / "tensorboard")).Reload()
    (epoch,) = Run(trained).epochs()
    assert [(e.step, e.value) for e in board.Scalars("epoch/valid_ppl")] == [
        (epoch.step, pytest.approx(epoch.valid_ppl, rel=1e-6))
    ]


# What macOS or Windows do not have, as far as it can be taken away here:
OTHER_SYSTEM = """
import signal, sys
del signal.SIGHUP
sys.modules["triton"] = sys.modules["resource"] = None
import highrank.memory
highrank.memory._kernel_bytes = lambda path, key: None
from highrank.__main__ import main
main()
"""


def test_training_needs_neither_triton_nor_linux(place):
    options = [*settings("data.corpus=toy"), "--out", "run", "--max-epochs", "1"]
    command = [sys.executable, "-c", OTHER_SYSTEM, "train", "ptb-mos", *options]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=PROCESS_TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads((place / "run" / "summary.json").read_text())["epochs"] == 1


def test_default_folders_are_numbered_and_the_latest_is_resumed(place):
    arguments = ("train", "ptb-mos", *settings("data.corpus=toy"), "--max-epochs", 1)
    highrank(*arguments, cwd=place)
    second = highrank(*arguments, cwd=place)
    assert "runs/ptb-mos exists" in second.stderr
    assert sorted(p.name for p in (place / "runs").iterdir()) == ["ptb-mos", "ptb-mos-2"]
    highrank("train", "ptb-mos", "--resume", "--max-epochs", 2, cwd=place)
    assert [state(place / "runs" / name).epoch for name in ("ptb-mos", "ptb-mos-2")] == [1, 2]


def test_a_character_corpus(place):
    extra = "data.corpus=toy data.level=char"
    done = highrank("train", "ptb-mos", *settings(extra), "--out", "run", "--max-epochs", 1, cwd=place)
    assert Run(place / "run").info().corpus_level == "char"
    assert "bpc" in done.stdout
    assert "bpc" in highrank("runs", ".", cwd=place).stdout
    row = json.loads(highrank("evaluate", "run", "--json", cwd=place).stdout)
    assert row["bits_per_character"] == pytest.approx(row["nll"] / math.log(2))
    assert "bpc" in highrank("evaluate", "run", cwd=place).stdout


def test_text8_in_miniature(place):
    folder = place / "text8"
    folder.mkdir()
    (folder / "text8.prefix").write_text(("the cat sees a small bird and " * 70)[:2000])
    small = ["train.batch_size=4", "train.bptt=20", "model.hidden_sizes=8", "model.embed_dim=6"]
    options = [part for setting in small for part in ("--set", setting)]
    arguments = ("train", "text8-mos7", *options, "--max-epochs", 1, "--data-dir", ".", "--out", "run")
    assert "bpc" in highrank(*arguments, cwd=place).stdout
    assert "bpc" in highrank("record", "run", "--out", "record.json", cwd=place).stdout
    record = json.loads((place / "record.json").read_text())
    assert record["corpus_extent"] == "prefix of 2,000 characters"
    assert len(highrank("generate", "run", "--length", 20, cwd=place).stdout.strip("\n")) == 21
    lines = highrank("generate", "run", "--beam", 2, "--prompt", "the ", "--length", 5, cwd=place).stdout.splitlines()
    assert {len(line) for line in lines} == {len("    -1.23  the ") + 5}


def test_an_existing_run_is_not_overwritten(place, trained):
    before = contents(trained)
    assert "--resume" in fails("train", "ptb-mos", *settings(), "--out", "run", cwd=place)
    assert contents(trained) == before


# --- resume ---------------------------------------------------------------------------------------------------------


def test_resume_continues_to_the_end(place, trained):
    highrank(*RESUME, cwd=place)
    assert (state(trained).epoch, state(trained).finished) == (3, True)


def test_resume_with_finetune_starts_a_stage(place, trained):
    highrank(*RESUME, "--finetune", "--max-epochs", 2, cwd=place)
    assert (state(trained).stage, state(trained).epoch) == (1, 2)


def test_resume_accepts_the_same_settings(place):
    (place / "corpora").mkdir()
    (place / "toy").rename(place / "corpora" / "toy")
    arguments = ("train", "ptb-mos", *settings("data.corpus=toy"), "--data-dir", "corpora", "--out", "run")
    highrank(*arguments, "--max-epochs", 1, cwd=place)
    highrank(*arguments, "--max-epochs", 1, "--resume", cwd=place)


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [
        (["ptb-mos", *settings("data.corpus=toy train.lr=3")], {"train.lr"}),
        (["ptb-mos", "--set", "train.lr=3", "--set", "model.tied=false"], {"train.lr", "model.tied"}),
        (["ptb-mos", "--set", "data.level=char"], {"data.level"}),
    ],
)
def test_resume_with_other_settings_names_only_the_changes(place, trained, arguments, keys):
    before = contents(trained)
    message = fails("train", *arguments, "--out", "run", "--resume", cwd=place)
    assert set(re.findall(r"(\S+) = ", message)) == keys
    assert contents(trained) == before


def test_resume_with_another_recipe_names_both(place, trained):
    message = fails("train", "ptb-moc", "--out", "run", "--resume", cwd=place)
    assert "ptb-mos" in message
    assert "ptb-moc" in message


def test_resume_finds_a_corpus_that_has_moved(place, trained, monkeypatch):
    (place / "toy").rename(place / "text")
    assert "toy" in fails(*RESUME, cwd=place)
    highrank(*RESUME, "--max-epochs", 1, "--data-dir", "text", cwd=place)
    (place / "corpora").mkdir()
    (place / "text").rename(place / "corpora" / "toy")
    monkeypatch.setenv("HIGHRANK_DATA", str(place / "corpora"))
    highrank(*RESUME, "--max-epochs", 1, cwd=place)


def test_resume_finds_the_data_folder_of_another_machine(place, monkeypatch):
    shutil.copytree(place / "toy", place / "here" / "penn")
    arguments = ("train", "ptb-mos", "--out", "run", "--max-epochs", 1)
    highrank(*arguments, *settings("data.level=char"), "--data-dir", "here", cwd=place)
    (place / "here").rename(place / "there")
    assert "penn" in fails(*arguments, "--resume", cwd=place)
    monkeypatch.setenv("HIGHRANK_DATA", str(place / "there"))
    highrank(*arguments, "--resume", cwd=place)


def test_resume_with_changed_text_is_an_error(place, trained):
    (place / "toy" / "train.txt").write_text("something else\n" * 200)
    assert "toy" in fails(*RESUME, cwd=place)


def test_missing_metrics_do_not_prevent_a_resume(place, trained):
    (trained / "metrics.jsonl").write_bytes(b"")
    highrank(*RESUME, "--max-epochs", 2, cwd=place)


def test_resume_removes_temporary_files_only(place, trained):
    (trained / "checkpoint-best.safetensors").write_bytes(b"mine")
    left_by_kills = [".checkpoint-3-1.safetensors.77.tmp", ".vocabulary.json.77.tmp", ".tmpsubSTo"]
    for name in left_by_kills:
        (trained / name).write_bytes(b"half a file")
    highrank(*RESUME, "--max-epochs", 1, cwd=place)
    assert (trained / "checkpoint-best.safetensors").read_bytes() == b"mine"
    assert not any((trained / name).exists() for name in left_by_kills)


# --- kills and signals ----------------------------------------------------------------------------------------------


def start(*arguments, cwd):
    command = [sys.executable, "-m", "highrank", *map(str, arguments)]
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for_checkpoint(folder, process):
    while not checkpoints.has_checkpoint(folder):
        assert process.poll() is None
        time.sleep(0.01)


def assert_same_folders(a: Path, b: Path) -> None:
    one, two = checkpoints.load(a), checkpoints.load(b)
    assert one.tensors.keys() == two.tensors.keys()
    assert all(torch.equal(one.tensors[name], two.tensors[name]) for name in one.tensors)
    states = []
    for checkpoint in (one, two):  # without times, which differ
        stages = [dataclasses.replace(stage, seconds=0.0) for stage in checkpoint.state.stages]
        states.append(dataclasses.replace(checkpoint.state, seconds=0.0, stages=stages))
    assert states[0] == states[1]
    assert Run(a).model_file.read_bytes() == Run(b).model_file.read_bytes()


def test_a_killed_process_resumes_bit_for_bit(place):
    """SIGKILL several times, at whatever moment it hits, each time followed by --resume."""
    extra = "data.corpus=toy train.nonmono=1 train.max_epochs=8"
    extra += " train.finetunes=1 train.finetune_max_epochs=4"
    arguments = ("train", "ptb-mos", *settings(extra), "--checkpoint-every", 0)
    highrank(*arguments, "--out", "whole", cwd=place)
    process = start(*arguments, "--out", "cut", cwd=place)
    kills = 0
    for delay in (0.05, 0.4, 0.15, 0.3):
        wait_for_checkpoint(place / "cut", process)
        before = state(place / "cut").step
        while process.poll() is None and state(place / "cut").step == before:
            time.sleep(0.005)
        time.sleep(delay)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.communicate()
        process = start("train", "ptb-mos", "--out", "cut", "--resume", "--checkpoint-every", 0, cwd=place)
    output, _ = process.communicate(timeout=PROCESS_TIMEOUT)
    assert process.returncode == 0, output
    assert kills >= 2
    assert state(place / "cut").finished
    assert_same_folders(place / "whole", place / "cut")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_prints_the_resume_command(place, number):
    arguments = ("train", "ptb-mos", *settings("data.corpus=toy train.max_epochs=100000"), "--out", "run")
    process = start(*arguments, "--checkpoint-every", 0.5, cwd=place)
    wait_for_checkpoint(place / "run", process)
    process.send_signal(number)
    output, _ = process.communicate(timeout=PROCESS_TIMEOUT)
    assert process.returncode == 130
    command = next(line.strip() for line in output.splitlines() if line.startswith("  highrank train"))
    step = state(place / "run").step
    highrank(*command.split()[1:], "--time-budget", "0.2s", cwd=place)
    assert state(place / "run").step > step


def test_a_terminal_that_closes_does_not_prevent_saving(place):
    """Run in a new session whose terminal vanishes: the kernel sends SIGHUP, and every later print fails."""
    arguments = ("train", "ptb-mos", *settings("data.corpus=toy train.max_epochs=100000"), "--out", "run")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(place)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored if the tests run under nohup
        os.execv(sys.executable, [sys.executable, "-m", "highrank", *map(str, arguments)])
    while not checkpoints.has_checkpoint(place / "run"):
        os.read(terminal, 10_000)
    first = state(place / "run").step
    while b"epoch" not in os.read(terminal, 10_000):
        pass
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    assert state(place / "run").step > first
    assert checkpoints.read(place / "run").pieces[-1].outcome == "interrupted"


# --- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ("ptb-moss", "ptb-mos"),
        ("ptb-mos --set train.rl=1", "train.rl"),
        ("ptb-mos --set train.lr=fast", "train.lr"),
        ("ptb-mos", "penn"),
        ("ptb-mos --data-dir nowhere", "nowhere"),
        ("ptb-mos --set data.corpus=toy/train.txt", "toy/train.txt"),
        ("ptb-mos --set data.corpus=toy --data-dir nowhere", "nowhere"),  # though ./toy is a corpus
        ("pydoc-mos --finetune", "--resume"),
        ("ptb-mos --resume", "ptb-mos"),
        ("pydoc-mos --device gpu", "gpu"),
        ("pydoc-mos --device cuda:77", "cuda:77"),
        ("pydoc-mos --time-budget soon", "soon"),
        ("pydoc-mos --time-budget inf", "inf"),
        ("pydoc-mos --set data.level=char", "pydoc"),
        ("pydoc-mos --data-dir toy --max-epochs 0", "pydoc"),
        ("pydoc-mos --set train.batch_size=99999999", "batch"),
        ("pydoc-mos --set train.seed=99999999999999999999", "train.seed"),
        ("pydoc-mos --set train.finetune_lr=0", "train.finetune_lr"),
        ("pydoc-mos --out toy", "toy"),
    ],
)
def test_a_wrong_argument_is_named_before_anything_is_written(place, arguments, name):
    assert name in fails("train", *arguments.split(), cwd=place)
    assert not (place / "runs").exists()


def test_a_folder_that_cannot_be_written_is_an_error(place):
    (place / "file").write_text("")
    for folder in ("file", "file/run"):
        done = highrank("train", "ptb-mos", *settings("data.corpus=toy"), "--out", folder, cwd=place, check=2)
        assert not done.stdout


def lose_checkpoint(run: Path) -> None:
    (run / "checkpoint.json").unlink()


def empty_generator(run: Path) -> None:
    data = json.loads((run / "checkpoint.json").read_text())
    data["state"]["window_rng"] = {}
    (run / "checkpoint.json").write_text(json.dumps(data))


def cut_tensors(run: Path) -> None:
    file = next(run.glob("checkpoint-*.safetensors"))
    file.write_bytes(file.read_bytes()[:-100])


def cut_json(run: Path) -> None:
    (run / "checkpoint.json").write_text('{"tensors": ')


def replace_json(run: Path) -> None:
    (run / "checkpoint.json").write_text('{"epoch": 3}')


def lose_tensors(run: Path) -> None:
    next(run.glob("checkpoint-*.safetensors")).unlink()


def lose_model(run: Path) -> None:
    Run(run).model_file.unlink()


def pickle_tensors(run: Path) -> None:
    torch.save({"weights": torch.zeros(3)}, next(run.glob("checkpoint-*.safetensors")))


@pytest.mark.parametrize(
    "damage",
    [lose_checkpoint, empty_generator, cut_tensors, cut_json, replace_json, lose_tensors, lose_model, pickle_tensors],
)
def test_a_damaged_checkpoint_is_an_error(place, trained, damage):
    damage(trained)
    assert "run" in fails(*RESUME, cwd=place)


def test_a_full_disk_loses_nothing(place, trained):
    """A limit on the size of files makes the write of a checkpoint fail halfway, as on a full disk."""
    before = contents(trained)
    size = max(len(data) for name, data in before.items() if name.startswith("checkpoint"))
    message = fails(
        *RESUME, cwd=place, run=as_process,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2)),
    )  # fmt: skip
    assert "run" in message
    after = contents(trained)
    assert all(after[name] == data for name, data in before.items() if name.startswith(("checkpoint", "model")))
    assert not list(trained.glob(".*.tmp"))
    highrank(*RESUME, cwd=place)
