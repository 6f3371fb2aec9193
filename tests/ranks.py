"""Several connected processes: a function in forked ones, which start in no time, or a command started by torchrun."""

import multiprocessing
import os
import shlex
import subprocess
import sys
import traceback

import torch
import torch.distributed as dist

from highrank.training.ranks import Ranks

TIMEOUT = 120  # seconds; generous, so that only a process that hangs reaches it on a busy machine


def in_ranks(size, folder, function, *args):
    """Return the results of function(ranks, *args) in `size` processes, in the order of the ranks.

    The result of a process that raised or died is None.
    """
    store = folder / f"store-{len(list(folder.iterdir()))}"
    files = [folder / f"{store.name}-{rank}" for rank in range(size)]
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=_run, args=(rank, size, store, files[rank], function, args)) for rank in range(size)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(TIMEOUT)
        if process.is_alive():
            process.kill()
    return [torch.load(file, weights_only=False) if file.exists() else None for file in files]


def _run(rank, size, store, file, function, args):
    torch.set_num_threads(1)  # threads do not survive a fork
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    try:
        torch.save(function(Ranks(rank, size, connected=True), *args), file)
    except BaseException:
        traceback.print_exc()


def start_torchrun(command, cwd):
    """Start a command "torchrun ...", on a free port, so that tests may run side by side."""
    program, *arguments = shlex.split(command)
    assert program == "torchrun"
    free_port = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *free_port, *arguments],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
