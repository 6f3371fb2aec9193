"""`averaged_sgd_` in Triton: one pass over parameter, gradient and average instead of seven.

For P parameters the minimal traffic is 5 P float32 words with averages (three read, two written), 7 P with two lists.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from highrank.ops.jit import jit

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

BLOCK = 2048
TENSORS = 64  # per launch: the size of a kernel's arguments is limited


def averaged_sgd_(
    parameters: Sequence[Tensor],
    grads: Sequence[Tensor],
    averages: Sequence[Tensor] | None,
    keep: Tensor,
    rate: Tensor,
    share: Tensor,
    apply: Tensor,
    short: Sequence[Tensor] | None = None,
    short_share: Tensor | None = None,
) -> None:
    # Gradients may be expanded or transposed views; the kernel reads contiguous memory.
    grads = [grad.to(torch.float32).contiguous() for grad in grads]
    # Missing lists are neither read nor written; the parameters are placeholders for them.
    tails = [parameters if x is None else x for x in (averages, short)]
    short_share = share if short_share is None else short_share
    for first in range(0, len(parameters), TENSORS):
        some = slice(first, first + TENSORS)
        sizes = tuple(p.numel() for p in parameters[some])
        starts = (0, *itertools.accumulate(triton.cdiv(n, BLOCK) for n in sizes))  # of each tensor's blocks
        with torch.cuda.device_of(parameters[first]):
            _averaged_sgd_kernel[(starts[-1],)](
                *(tuple(x[some]) for x in (parameters, grads, *tails)), starts, sizes,
                keep, rate, share, short_share, apply.view(torch.uint8), averages is not None, short is not None, BLOCK,
            )  # fmt: skip


@jit()
def _averaged_sgd_kernel(
    parameters, grads, averages, short, starts, sizes, keep, rate, share, short_share, apply,
    AVERAGE: tl.constexpr, SHORT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Update a block of one tensor per program. One launch serves all tensors, since most of them are small."""
    block = tl.program_id(0)
    for t in tl.static_range(len(parameters)):
        if (block >= starts[t]) & (block < starts[t + 1]):
            i = (block - starts[t]).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
            inside = (i < sizes[t]) & (tl.load(apply) != 0)
            p = tl.load(keep).to(tl.float32) * tl.load(parameters[t] + i, mask=inside, other=0.0)
            p -= tl.load(rate).to(tl.float32) * tl.load(grads[t] + i, mask=inside, other=0.0)
            tl.store(parameters[t] + i, p, mask=inside)
            if AVERAGE:
                a = tl.load(averages[t] + i, mask=inside, other=0.0)
                tl.store(averages[t] + i, a + tl.load(share).to(tl.float32) * (p - a), mask=inside)
            if SHORT:
                s = tl.load(short[t] + i, mask=inside, other=0.0)
                tl.store(short[t] + i, s + tl.load(short_share).to(tl.float32) * (p - s), mask=inside)
