"""Several processes that train one model: every rank reads its own columns of the batch, and gradients are summed.

A rank's loss is the share that its columns have in the mean over the whole batch, so the sum of the ranks' gradients is
the gradient of one process with that batch. Every rank then clips and updates in the same way, and the weights stay
equal without being sent. The ranks also agree when to save and when to pause, since clocks and signals differ.

Each gradient is summed in place once the backward pass has ended, inside the CUDA graph of the step. DDP would start
earlier, to hide the transfer behind the backward pass, but here there is little to hide: a tied embedding has most of
the bytes, and its gradient is complete only when the backward pass is (docs/scaling.md).
"""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from highrank.errors import UserError

T = TypeVar("T")


class RankLostError(UserError):
    """Another process of this training has ended."""


@dataclass(frozen=True)
class Ranks:
    """The place of this process among those that train together. The default is a process that trains alone.

    Every method must be called by all ranks in the same order.
    """

    rank: int = 0
    size: int = 1
    connected: bool = False  # a process group exists; torchrun may also start a single process

    @property
    def first(self) -> bool:
        """Whether this process prints, and writes the run folder."""
        return self.rank == 0

    def columns(self, batch_size: int) -> slice:
        """Return this rank's columns of a batch. The numbers of columns of two ranks differ by at most one."""
        return slice(self.rank * batch_size // self.size, (self.rank + 1) * batch_size // self.size)

    def sum_(self, tensors: Iterable[Tensor]) -> None:
        """Replace every tensor by its sum over the ranks."""
        if self.connected:
            with _detect_lost_rank():
                for tensor in tensors:
                    dist.all_reduce(tensor)

    def largest(self, value: int) -> int:
        """Return the largest value of any rank."""
        if not self.connected:
            return value
        tensor = torch.tensor(value)  # on the CPU: a number for the host need not wait for the device
        with _detect_lost_rank():
            dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return int(tensor.item())

    def wait(self) -> None:
        """Wait until all ranks have called this."""
        self.largest(0)

    def broadcast(self, value: T) -> T:
        """Return the value of the first rank."""
        if not self.connected:
            return value
        values = [value]
        with _detect_lost_rank():
            dist.broadcast_object_list(values, device=torch.device("cpu"))
        return values[0]

    def gather(self, value: T) -> list[T]:
        """Return the values of all ranks, in their order."""
        if not self.connected:
            return [value]
        values: list[T] = [value] * self.size
        with _detect_lost_rank():
            dist.all_gather_object(values, value)
        return values


ALONE = Ranks()


def rank_device(device: torch.device) -> torch.device:
    """Return the GPU of this process, if torchrun started several on this machine."""
    local_rank = os.environ.get("LOCAL_RANK")
    if device.type == "cpu" or device.index is not None or local_rank is None:
        return device
    if int(local_rank) >= torch.cuda.device_count():
        raise UserError(
            f"this machine has {torch.cuda.device_count()} GPUs, and torchrun started more processes: start at most "
            "one per GPU."
        )
    return torch.device("cuda", int(local_rank))


@contextlib.contextmanager
def connect_ranks(device: torch.device) -> Iterator[Ranks]:
    """Connect the processes that torchrun started for the duration of the block; without torchrun, train alone."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        yield ALONE
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    yield Ranks(dist.get_rank(), dist.get_world_size(), connected=True)
    dist.destroy_process_group()  # not after an error: it would wait for ranks that may be gone


@contextlib.contextmanager
def _detect_lost_rank() -> Iterator[None]:
    """Raise a RankLostError if a collective operation of the block fails because a peer has ended."""
    try:
        yield
    except RuntimeError as error:  # gloo's connection was closed, or NCCL's communicator aborted
        reason = re.sub(r"^\[[^]]*\] ", "", str(error)).partition(". ")[0]  # without the line of gloo's source
        raise RankLostError(
            f"another process of this training has ended ({reason}): see its error, and resume."
        ) from None
