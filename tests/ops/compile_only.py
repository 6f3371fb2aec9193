"""Compile every kernel for an NVIDIA GPU that is not present: python compile_only.py 90

Triton's interpreter runs a kernel's arithmetic without compiling it. Here the ops run on a CPU, and every launch only
compiles its kernel, which finds errors of types, globals and shared memory without a GPU. The results of the ops are
meaningless. Prints one line per binary: kernel, bytes of shared memory.
"""

import sys

import torch
import triton
from triton.backends.compiler import GPUTarget

from highrank.ops.activation_penalty.kernel import activation_penalty
from highrank.ops.averaged_sgd.kernel import averaged_sgd_
from highrank.ops.lstm import kernel as lstm
from highrank.ops.mos_nll.kernel import mos_nll, plan
from highrank.ops.mos_nll.sampling import RowSample
from highrank.ops.pad.kernel import pad


class NoGPU:
    """The part of a driver that compilation needs."""

    def __init__(self, capability: int) -> None:
        self.target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def compile_instead_of_launching() -> None:
    run = triton.runtime.jit.JITFunction.run

    def compiled(self, *args, grid, warmup, **options):
        kernel = run(self, *args, grid=grid, warmup=True, **options)
        print(self.__name__, kernel.metadata.shared, flush=True)

    triton.runtime.jit.JITFunction.run = compiled


def leaf(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, requires_grad=True)


def compile_all() -> None:
    for dtype, d, v in ((torch.bfloat16, 280, 10_000), (torch.float16, 520, 10_000), (torch.float32, 24, 200)):
        h, log_pi, weight, bias = leaf(4, 3, d, dtype=dtype), leaf(4, 3), leaf(v, d), leaf(v)
        targets = torch.zeros(4, dtype=torch.long)
        for sample, margins in ((None, None), (RowSample(0.5, torch.zeros(4)), torch.zeros(4, 3))):
            nll = mos_nll(h, log_pi, weight, bias, targets, skip=False, sample=sample, margins=margins)
            nll.sum().backward()
    for seed, drop in ((None, 0.0), (torch.ones(1, dtype=torch.long), 0.5)):
        shapes = (48, 10), (48, 12)
        packed = lstm.pack_weights(*(leaf(*s) for s in (*shapes, (48,), (48,))), 128, 128, torch.float16, seed, drop)
        lstm.unpack_gradients(*packed, *map(torch.Size, shapes), torch.float32, seed, drop)
    pad(leaf(3, 2, 10), (3, 8, 128), torch.float16)
    activation_penalty(leaf(3, 2, 10), leaf(3, 2, 10), 2.0, 1.0).backward()
    weights, one = [torch.zeros(2000), torch.zeros(3, 5)], torch.ones(())
    for averages, short in ((None, None), (weights, None), (weights, weights)):
        averaged_sgd_(weights, weights, averages, one, one, one, torch.tensor(True), short, one)


if __name__ == "__main__":
    capability = int(sys.argv[1])
    triton.runtime.driver.set_active(NoGPU(capability))
    compile_instead_of_launching()
    plan._capability = lambda device: divmod(capability, 10)
    compile_all()
