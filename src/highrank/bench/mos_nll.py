"""Time and extra memory of the loss of a mixture of softmaxes, forward and backward, next to its peers.

The algorithm needs three matrix products of 2 N K D V operations: the logits, and their gradients towards h and W.
TFLOP/s count exactly these three, whatever else an implementation recomputes.
"""

from dataclasses import dataclass, replace
from functools import partial

import torch

from highrank.bench.benchmark import Benchmark, Job
from highrank.bench.memory import measure_extra_mib
from highrank.bench.peers import Implementation, Shape, forward_backward, implementations, make_inputs, relative_errors
from highrank.bench.table import CallRow, origin
from highrank.bench.timing import matrix_ceiling, time_columns
from highrank.errors import UserError, nearest
from highrank.memory import GIB, free_bytes

SIZES: dict[str, Shape] = {  # N tokens, K components, D embedding size, V vocabulary: a window of the paper's models
    "ptb": (840, 15, 280, 10_000),
    "wt2": (1050, 15, 300, 33_278),
    "1b": (2100, 7, 900, 100_000),
}
MAX_ERROR = 0.05  # relative; bfloat16 alone makes at most 0.005, a wrong gradient about 1


@dataclass(frozen=True, kw_only=True)
class LossRow(CallRow):
    """One implementation at one size. `times_ours` compares it with the fastest implementation of highrank."""

    size: str
    N: int
    K: int
    D: int
    V: int
    dtype: str
    implementation: str
    version: str | None = None
    times_ours: float | None = None  # of best_ms
    eager_times_ours: float | None = None  # of median_ms
    tflops: float | None = None
    ceiling_tflops: float | None = None
    extra_mib: float | None = None
    nll_error: float | None = None
    grad_error: float | None = None


def parse_sizes(text: str) -> dict[str, Shape]:
    """Parse names of `SIZES` and sizes NxKxDxV, separated by commas: 'ptb,840x15x280x10000'."""
    sizes: dict[str, Shape] = {}
    for name in filter(None, map(str.strip, text.split(","))):
        numbers = [int(part) for part in name.split("x") if part.isdigit()]
        if name in SIZES:
            sizes[name] = SIZES[name]
        elif len(numbers) == 4 and name.count("x") == 3 and all(numbers):
            sizes[name] = (numbers[0], numbers[1], numbers[2], numbers[3])
        else:
            raise UserError(f'"{name}" is not a size (write a name or NxKxDxV){nearest(name, SIZES)}')
    if not sizes:
        raise UserError(f"No sizes were given: choose from {', '.join(SIZES)}, or write NxKxDxV.")
    return sizes


def loss_benchmark(
    sizes: dict[str, Shape], device: torch.device, dtype: torch.dtype, rounds: int, compiled: bool = False
) -> Benchmark[LossRow]:
    """List the measurements of every implementation at every size; `compiled` adds torch.compile of the naive one."""
    columns = {**origin(device), "device": device.type, "dtype": str(dtype).removeprefix("torch.")}
    columns["ceiling_tflops"] = matrix_ceiling(dtype, device)
    jobs = []
    for size, (n, k, d, v) in sizes.items():
        for one in implementations(device, dtype, compiled):
            row = LossRow(size=size, N=n, K=k, D=d, V=v, implementation=one.name, version=one.version, **columns)
            jobs.append(Job(row, partial(_measure, one, device, dtype, rounds)))
    return Benchmark("mos_nll", LossRow, jobs, fill_ratios)


def _measure(
    implementation: Implementation, device: torch.device, dtype: torch.dtype, rounds: int, row: LossRow
) -> LossRow:
    shape = (row.N, row.K, row.D, row.V)
    needed = row.N * row.K * row.V * implementation.bytes_per_logit
    free = free_bytes(device)
    if free is not None and needed > 0.9 * free:
        return replace(row, status=f"skipped: needs about {needed / GIB:.1f} GiB, {free / GIB:.1f} GiB are free")
    loss = implementation.load()
    nll_error, grad_error = relative_errors(loss, shape, device, dtype)
    row = replace(row, nll_error=nll_error, grad_error=grad_error)
    if not max(nll_error, grad_error) <= MAX_ERROR:  # also true for NaN
        return replace(row, status="rejected: its loss or gradients are wrong")
    call = partial(forward_backward, loss, make_inputs(shape, device, dtype))
    times = time_columns(call, device, rounds, graph=device.type == "cuda" and implementation.graph)
    return replace(row, **times, extra_mib=measure_extra_mib(call, device))


def fill_ratios(rows: list[LossRow]) -> list[LossRow]:
    """Fill in TFLOP/s, and the ratios to the fastest of highrank's implementations at the same size."""

    def fill(row: LossRow) -> LossRow:
        ours = [other for other in rows if other.size == row.size and other.implementation.startswith("highrank")]
        best = min((other.best_ms for other in ours if other.best_ms), default=None)
        eager = min((other.median_ms for other in ours if other.median_ms), default=None)
        return replace(
            row,
            times_ours=row.best_ms / best if row.best_ms and best else None,
            eager_times_ours=row.median_ms / eager if row.median_ms and eager else None,
            tflops=3 * 2 * row.N * row.K * row.D * row.V / row.best_ms / 1e9 if row.best_ms else None,
        )

    return [fill(row) for row in rows]
