"""The price of a mixture over K, V and N: time and extra memory of `mos_nll`, forward and backward, beside one softmax.

The softmax is the same op at K = 1 with the same N, D and V; torch's own (`F.cross_entropy` on all logits) stands
beside it as a check. `ratio` is the mixture's time over that of the K = 1 op.
"""

import functools
from typing import NamedTuple

import torch

from highrank.bench.memory import Job, cpu_extra_mib, cuda_extra_mib
from highrank.bench.peers import Shape, find_loss, make_inputs, update
from highrank.bench.record import Record, Row, Say, origin
from highrank.bench.timing import OUT_OF_TIME, Clock, Timing, graphed, in_turns, reason, release
from highrank.bench.timing import time_columns as columns


class Sweep(NamedTuple):
    """One of K, V and N takes each of its values while the others stay at `base`."""

    base: Shape
    over: dict[str, tuple[int, ...]]

    def shapes(self) -> list[tuple[str, Shape]]:
        n, k, d, v = self.base
        made = {"K": lambda x: (n, x, d, v), "V": lambda x: (n, k, d, x), "N": lambda x: (x, k, d, v)}
        return [(name, made[name](x)) for name, values in self.over.items() for x in values]


CUDA = Sweep(
    (840, 15, 280, 10_000),
    {
        "K": (1, 2, 4, 8, 15, 32, 64),
        "V": (1_000, 4_000, 16_000, 64_000, 256_000),
        "N": (70, 210, 840, 3_360, 13_440),
    },
)
CPU = Sweep(  # the same ranges of K and V, for fewer tokens
    (64, 15, 280, 10_000),
    {
        "K": (1, 2, 4, 8, 15, 32, 64),
        "V": (1_000, 4_000, 16_000, 64_000, 256_000),
        "N": (16, 64, 256, 1_024),
    },
)
MIXTURE, SOFTMAX, TORCH = "mixture", "softmax", "cross_entropy"


def measure(
    record: Record,
    sweep: Sweep,
    device: torch.device,
    dtype: torch.dtype,
    *,
    rounds: int,
    clock: Clock,
    say: Say,
) -> None:
    begun, points = origin(device), sweep.shapes()
    memory = _cpu_memory(points, dtype) if device.type == "cpu" else {}
    began = clock.elapsed()
    for i, (name, shape) in enumerate(points):
        row = _blank(name, shape, dtype, device)
        if clock.over():
            row["status"] = OUT_OF_TIME
        else:
            try:
                row |= _point(shape, device, dtype, rounds, memory)
            except Exception as error:  # a size too large for this machine leaves the others alone
                row["status"] = reason(error)
                release(device)
        record.add(row | begun)
        left = (clock.elapsed() - began) / (i + 1) * (len(points) - i - 1)
        say(f"{describe(row)}  (about {left:.0f} s left)")


def _point(shape: Shape, device: torch.device, dtype: torch.dtype, rounds: int, memory: dict[Job, float | None]) -> Row:
    n, _, d, v = shape
    jobs = {
        MIXTURE: Job("highrank", shape),
        SOFTMAX: Job("highrank", (n, 1, d, v)),
        TORCH: Job("cross_entropy", (n, 1, d, v)),
    }
    losses = {name: find_loss(job.loss, device, dtype) for name, job in jobs.items()}
    inputs = {name: make_inputs(job.shape, device, dtype) for name, job in jobs.items()}
    calls = {name: functools.partial(update, losses[name], inputs[name]) for name in jobs}
    seconds, at_least = (5.0, 2.0) if device.type == "cpu" else (0.5, 0.0)
    timings, failures = in_turns(calls, device, rounds, seconds, at_least=at_least)
    if failures:
        raise RuntimeError("; ".join(f"{name} {why}" for name, why in failures.items()))
    row: Row = columns(timings[MIXTURE])
    best = {}
    for name, job in jobs.items():
        graph: Timing | None = None
        if device.type == "cuda":
            graph = graphed(calls[name], device, rounds, seconds)
            row["extra_mib" if name == MIXTURE else f"{name}_mib"] = cuda_extra_mib(losses[name], inputs[name])
        else:
            row["extra_mib" if name == MIXTURE else f"{name}_mib"] = memory[job]
        best[name] = min(t.median_ms for t in (timings[name], graph) if t is not None)
        if name == MIXTURE:
            row["graph_ms"] = graph and graph.median_ms
    row |= {"best_ms": best[MIXTURE], "softmax_ms": best[SOFTMAX], "cross_entropy_ms": best[TORCH]}
    row["ratio"] = best[MIXTURE] / best[SOFTMAX]
    return row


def _cpu_memory(points: list[tuple[str, Shape]], dtype: torch.dtype) -> dict[Job, float | None]:
    """Of everything at once: a process for each would take longer than the rest."""
    jobs = []
    for _, (n, k, d, v) in points:
        jobs += [Job("highrank", (n, k, d, v)), Job("highrank", (n, 1, d, v)), Job("cross_entropy", (n, 1, d, v))]
    unique = list(dict.fromkeys(jobs))
    return dict(zip(unique, cpu_extra_mib(unique, dtype), strict=True))


def _blank(name: str, shape: Shape, dtype: torch.dtype, device: torch.device) -> Row:
    n, k, d, v = shape
    where = {"dtype": str(dtype).split(".")[1], "device": device.type, "status": "ok"}
    empty = ("graph_ms", "best_ms", "softmax_ms", "cross_entropy_ms", "ratio")
    sizes = ("extra_mib", "softmax_mib", "cross_entropy_mib")
    row = {"sweep": name, "N": n, "K": k, "D": d, "V": v, **where, **columns(None)}
    return row | dict.fromkeys(empty + sizes)


def describe(row: Row) -> str:
    text = f"  {row['sweep']} sweep, N={row['N']:,} K={row['K']} V={row['V']:,}: "
    if row["best_ms"] is None:
        return text + row["status"]
    text += f"{row['best_ms']:,.2f} ms, {row['ratio']:.2f}x one softmax ({row['softmax_ms']:,.2f} ms)"
    return text + (f", {row['extra_mib']:,.0f} MiB extra" if row["extra_mib"] is not None else "")
