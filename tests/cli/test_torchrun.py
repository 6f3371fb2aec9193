"""`torchrun -m highrank train`: two processes on the CPU, as a user starts them."""

import os
import shlex
import signal
import subprocess
import time
from pathlib import Path

from helpers import PROCESS_TIMEOUT, highrank, settings
from highrank.cli.train import resume_command
from highrank.runs import checkpoint as checkpoints
from ranks import start_torchrun

TRAIN = shlex.join(["train", "ptb-mos", *settings("data.corpus=toy train.max_epochs=100000"), "--out", "run"])


def workers(process: subprocess.Popen[str]) -> list[int]:
    """Return the process ids of the children of torchrun."""
    done = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True)
    return [int(pid) for pid in done.stdout.split()]


def state(place: Path):
    return checkpoints.read(place / "run").state


def test_torchrun_trains_and_its_printed_command_resumes_until_a_process_is_killed(place):
    process = start_torchrun(f"torchrun --nproc-per-node 2 -m highrank {TRAIN} --device cpu --max-epochs 1", place)
    output, errors = process.communicate(timeout=PROCESS_TIMEOUT)
    assert process.returncode == 0, errors
    assert output.count("epoch   1") == 1  # one process prints
    assert checkpoints.read(place / "run").pieces[0].processes == 2

    before = state(place).step
    process = start_torchrun(f"{output.splitlines()[-1]} --device cpu --checkpoint-every 0", place)
    while state(place).step < before + 5:
        assert process.poll() is None
        time.sleep(0.05)
    pids = workers(process)
    assert len(pids) == 2
    os.kill(pids[1], signal.SIGKILL)
    _, errors = process.communicate(timeout=PROCESS_TIMEOUT)
    assert process.returncode == 1
    (sentence,) = (line for line in errors.splitlines() if line.startswith("highrank: "))
    assert sentence.endswith("run.")

    last = state(place)
    resume = ("train", "ptb-mos", "--out", "run", "--resume", "--device", "cpu")
    highrank(*resume, "--max-epochs", last.epoch + 1, cwd=place)
    assert state(place).step > last.step


def test_the_resume_command_has_the_numbers_of_machines_and_processes(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1b")
    monkeypatch.setenv("GROUP_WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    command = resume_command("1b-mos", Path("runs/1b-mos"))
    assert command.startswith("torchrun --nnodes 4 ")
    assert "--nproc-per-node 8 -m highrank train 1b-mos --out runs/1b-mos --resume" in command
