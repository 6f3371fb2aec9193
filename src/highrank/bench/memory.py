"""Extra memory: how far the peak of one forward and backward rises above the inputs and their gradients, in MiB.

On a GPU torch's allocator counts. On a CPU only the operating system can, so a process of its own computes the loss
and reads its resident memory (Linux); there, freed memory goes back at once, so that what comes next is counted again.
"""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import torch

from highrank.bench.peers import Inputs, Loss, Shape, find_loss, make_inputs, update


class Job(NamedTuple):
    loss: str  # a name that `find_loss` knows
    shape: Shape


def cuda_extra_mib(loss: Loss, inputs: Inputs) -> float:
    """Of a loss that has run before: what it compiles and caches is not counted."""
    device = inputs[0].device
    update(loss, inputs)  # the gradients exist from here on, and are dropped at the beginning of the next update
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    update(loss, inputs)
    torch.cuda.synchronize(device)
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20


def cpu_extra_mib(jobs: list[Job], dtype: torch.dtype) -> list[float | None]:
    """One after the other in one new process; None where it cannot be measured."""
    nothing: list[float | None] = [None] * len(jobs)
    if not Path("/proc/self/clear_refs").exists():
        return nothing
    text = json.dumps({"jobs": jobs, "dtype": str(dtype).split(".")[1]})
    # glibc: every block from 64 kB on is a mapping of its own, and leaves with its last use.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    command = [sys.executable, "-m", "highrank.bench.memory"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, env=environment, check=False)
    try:
        measured: list[float | None] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return nothing
    return measured


def _measure(job: Job, dtype: torch.dtype) -> float | None:
    cpu = torch.device("cpu")
    loss, inputs = find_loss(job.loss, cpu, dtype), make_inputs(job.shape, cpu, dtype)
    update(loss, make_inputs((32, job.shape[1], 37, 501), cpu, dtype))  # libraries and threads
    for x in inputs[:4]:
        x.grad = torch.ones_like(x)  # touched: resident before the measurement
    before = _resident("VmRSS")
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    except OSError:
        return None
    update(loss, inputs)
    return (_resident("VmHWM") - before) / 2**20


def _resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def main() -> None:
    asked = json.loads(sys.stdin.read())
    measured: list[float | None] = []
    for name, shape in asked["jobs"]:
        measured.append(None)
        with contextlib.suppress(Exception):  # one that fails also fails where it is timed, which reports it
            measured[-1] = _measure(Job(name, tuple(shape)), getattr(torch, asked["dtype"]))
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
