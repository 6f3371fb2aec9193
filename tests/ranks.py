"""Runs a function in several connected processes, as torchrun would start them, but forked: they start in no time."""

import multiprocessing
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
