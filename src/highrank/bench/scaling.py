"""Time and extra memory of `mos_nll` over K, V and N, forward and backward, next to one softmax.

The softmax is the same op at K = 1 with the same N, D and V; torch's own (`F.cross_entropy` on all logits) is measured
too. `ratio` is the mixture's time over that of the K = 1 op.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from highrank.bench.benchmark import Benchmark, Job
from highrank.bench.memory import measure_extra_mib
from highrank.bench.peers import Loss, Shape, forward_backward, make_inputs, plain_softmax
from highrank.bench.table import CallRow, origin
from highrank.bench.timing import time_columns
from highrank.ops.mos_nll import mos_nll

Point = tuple[str, Shape]  # the dimension that varies, and the shape


def sweep(base: Shape, **values: Sequence[int]) -> list[Point]:
    """List the shapes in which one of N, K, D and V takes each of its values while the others stay at `base`."""
    sizes = dict(zip("NKDV", base, strict=True))
    points: list[Point] = []
    for name, several in values.items():
        for value in several:
            changed = {**sizes, name: value}
            points.append((name, (changed["N"], changed["K"], changed["D"], changed["V"])))
    return points


COMPONENTS = (1, 2, 4, 8, 15, 32, 64)
VOCABULARIES = (1_000, 4_000, 16_000, 64_000, 256_000)
CUDA = sweep((840, 15, 280, 10_000), K=COMPONENTS, V=VOCABULARIES, N=(70, 210, 840, 3_360, 13_440))
CPU = sweep((64, 15, 280, 10_000), K=COMPONENTS, V=VOCABULARIES, N=(16, 64, 256, 1_024))


@dataclass(frozen=True, kw_only=True)
class ScalingRow(CallRow):
    """The mixture at one shape (the inherited times), and one softmax at the same N, D and V."""

    sweep: str
    N: int
    K: int
    D: int
    V: int
    dtype: str
    softmax_ms: float | None = None
    cross_entropy_ms: float | None = None
    ratio: float | None = None  # best_ms over softmax_ms
    extra_mib: float | None = None
    softmax_mib: float | None = None
    cross_entropy_mib: float | None = None


def scaling_benchmark(
    points: list[Point], device: torch.device, dtype: torch.dtype, rounds: int
) -> Benchmark[ScalingRow]:
    """List the measurements of the mixture and of one softmax at every point."""
    columns = {**origin(device), "device": device.type, "dtype": str(dtype).removeprefix("torch.")}
    jobs = []
    for name, (n, k, d, v) in points:
        row = ScalingRow(sweep=name, N=n, K=k, D=d, V=v, **columns)
        jobs.append(Job(row, partial(_measure, device, dtype, rounds)))
    return Benchmark("mos_nll_scaling", ScalingRow, jobs)


def _measure(device: torch.device, dtype: torch.dtype, rounds: int, row: ScalingRow) -> ScalingRow:
    def cost(loss: Loss, k: int) -> dict[str, Any]:
        """Return the time columns and the extra memory of a loss with k components."""
        call = partial(forward_backward, loss, make_inputs((row.N, k, row.D, row.V), device, dtype))
        times = time_columns(call, device, rounds, graph=device.type == "cuda")
        return {**times, "extra_mib": measure_extra_mib(call, device)}

    mixture = cost(mos_nll, row.K)
    softmax = cost(mos_nll, 1)
    cross_entropy = cost(plain_softmax, 1)
    return replace(
        row,
        **mixture,
        softmax_ms=softmax["best_ms"],
        softmax_mib=softmax["extra_mib"],
        cross_entropy_ms=cross_entropy["best_ms"],
        cross_entropy_mib=cross_entropy["extra_mib"],
        ratio=mixture["best_ms"] / softmax["best_ms"],
    )
