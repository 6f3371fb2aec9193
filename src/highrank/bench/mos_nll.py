"""The loss of a mixture of softmaxes, forward and backward, against the naive computation and its peers.

Of the three matrix products of 2 N K D V operations that the algorithm needs (logits, and their gradients towards h and
W), TFLOP/s count exactly three, whatever an implementation recomputes: recomputation is a cost, not an achievement.
"""

import contextlib
import functools

import torch

from highrank.bench.memory import Job, cpu_extra_mib, cuda_extra_mib
from highrank.bench.peers import (
    Implementation,
    Inputs,
    Loss,
    Shape,
    available_bytes,
    errors,
    implementations,
    make_inputs,
    missing,
    update,
)
from highrank.bench.record import Record, Row, Say, origin
from highrank.bench.timing import (
    OUT_OF_TIME,
    Clock,
    Timing,
    busy_ms,
    graphed,
    in_turns,
    matrix_ceiling,
    reason,
    release,
)
from highrank.bench.timing import time_columns as columns
from highrank.errors import UserError, nearest

SIZES: dict[str, Shape] = {  # N tokens, K components, D embedding size, V vocabulary: a window of the paper's models
    "ptb": (840, 15, 280, 10_000),
    "wt2": (1050, 15, 300, 33_278),
    "1b": (2100, 7, 900, 100_000),
}


def parse_sizes(text: str) -> dict[str, Shape]:
    """'ptb,wt2' or 'NxKxDxV', as in '840x15x280x10000'."""
    sizes: dict[str, Shape] = {}
    for name in filter(None, map(str.strip, text.split(","))):
        if name in SIZES:
            sizes[name] = SIZES[name]
            continue
        numbers = [int(part) for part in name.split("x") if part.isdigit()]
        if len(numbers) != 4 or name.count("x") != 3 or not all(numbers):
            raise UserError(f'there is no size "{name}" (NxKxDxV works too){nearest(name, SIZES)}')
        sizes[name] = (numbers[0], numbers[1], numbers[2], numbers[3])
    if not sizes:
        raise UserError(f"no sizes were named: choose of {', '.join(SIZES)}, or write NxKxDxV.")
    return sizes


def measure(
    record: Record,
    sizes: dict[str, Shape],
    device: torch.device,
    dtype: torch.dtype,
    *,
    rounds: int,
    compiled: bool = False,
    clock: Clock,
    say: Say,
) -> None:
    """Adds a row an implementation and size to the record."""
    begun = origin(device)
    side, ceiling = matrix_ceiling(dtype, device)
    say(f"matrix ceiling: {ceiling:,.3g} TFLOP/s (a cube of {side}, {_name(dtype)})")
    if absent := missing(device):
        say(f"not installed, so left out: {', '.join(absent)}")
    for size, shape in sizes.items():
        found = implementations(device, dtype, compiled)
        losses, notes = _load(found, shape, device, clock)
        inputs = make_inputs(shape, device, dtype)
        calls = {name: functools.partial(update, loss, inputs) for name, loss in losses.items()}
        seconds = 60 if device.type == "cpu" else 8
        timings, failures = in_turns(calls, device, rounds, seconds)
        notes |= failures
        graphs: dict[str, Timing] = {}
        for one in found:
            if device.type == "cuda" and one.graph and one.name in timings:
                try:
                    graphs[one.name] = graphed(calls[one.name], device, rounds, seconds=2)
                except Exception as error:
                    notes[one.name] = f"no graph, {reason(error)}"
        memory = _memory({name: losses[name] for name in timings}, inputs, shape)
        for one in found:
            row = _row(size, shape, dtype, device, one, timings.get(one.name), graphs.get(one.name))
            row |= {"status": notes.get(one.name, "ok"), "ceiling_tflops": ceiling}
            if one.name in timings:
                row |= _errors(losses[one.name], shape, device, dtype) | {"extra_mib": memory[one.name]}
            record.add(row | begun)
            say(describe(row))
        del calls, inputs
        release(device)
        compare([row for row in record.rows if row["size"] == size])
        record.save()
    if device.type == "cuda":  # last: the profiler stays attached, and slows what comes after it
        _add_busy(record, sizes, device, dtype, compiled, clock, say)


def _load(
    found: list[Implementation], shape: Shape, device: torch.device, clock: Clock
) -> tuple[dict[str, Loss], dict[str, str]]:
    """The losses that can be tried, and why the others cannot."""
    losses: dict[str, Loss] = {}
    notes: dict[str, str] = {}
    free, (n, k, _, v) = available_bytes(device), shape
    for one in found:
        need = n * k * v * one.bytes_a_logit
        if clock.over():
            notes[one.name] = OUT_OF_TIME
        elif free is not None and need > 0.9 * free:
            notes[one.name] = f"skipped: needs about {need / 2**30:.1f} GiB, {free / 2**30:.1f} are free"
        else:
            try:
                losses[one.name] = one.load()
            except Exception as error:
                notes[one.name] = reason(error)
    return losses, notes


def _row(
    size: str,
    shape: Shape,
    dtype: torch.dtype,
    device: torch.device,
    one: Implementation,
    eager: Timing | None,
    graph: Timing | None,
) -> Row:
    n, k, d, v = shape
    best = min((t.median_ms for t in (eager, graph) if t is not None), default=None)
    return {
        "size": size,
        "N": n,
        "K": k,
        "D": d,
        "V": v,
        "dtype": _name(dtype),
        "device": device.type,
        "implementation": one.name,
        "version": one.version,
        "status": "ok",
        **columns(eager),
        "graph_ms": graph and graph.median_ms,
        **columns(graph, "graph_", ("q25_ms", "q75_ms")),
        "busy_ms": None,
        "best_ms": best,
        "times_ours": None,
        "eager_times_ours": None,
        "busy_times_ours": None,
        "tflops": best and 3 * 2 * n * k * d * v / best / 1e9,
        "ceiling_tflops": None,
        "extra_mib": None,
        "nll_error": None,
        "grad_error": None,
    }


def _memory(losses: dict[str, Loss], inputs: Inputs, shape: Shape) -> dict[str, float | None]:
    """Extra MiB by name; on a CPU from a process each, since libraries keep memory from call to call."""
    if inputs[0].device.type == "cuda":
        extra: dict[str, float | None] = dict.fromkeys(losses)
        for name, loss in losses.items():
            with contextlib.suppress(Exception):  # it could be timed, so this is next to impossible
                extra[name] = cuda_extra_mib(loss, inputs)
        return extra
    return {name: cpu_extra_mib([Job(name, shape)], inputs[0].dtype)[0] for name in losses}


def _errors(loss: Loss, shape: Shape, device: torch.device, dtype: torch.dtype) -> Row:
    try:
        nll, grad = errors(loss, shape, device, dtype)
    except Exception as error:
        return {"status": f"timed, but its gradients {reason(error)}"}
    return {"nll_error": nll, "grad_error": grad}


def _add_busy(
    record: Record,
    sizes: dict[str, Shape],
    device: torch.device,
    dtype: torch.dtype,
    compiled: bool,
    clock: Clock,
    say: Say,
) -> None:
    for size, shape in sizes.items():
        inputs = make_inputs(shape, device, dtype)
        rows = [row for row in record.rows if row["size"] == size]
        for one in implementations(device, dtype, compiled):
            row = next(row for row in rows if row["implementation"] == one.name)
            if row["median_ms"] is None or clock.over():
                continue
            try:
                row["busy_ms"] = busy_ms(functools.partial(update, one.load(), inputs), device)
            except Exception as error:
                say(f"  {size} {one.name}: kernels alone {reason(error)}")
        del inputs
        release(device)
        compare(rows)
        record.save()


def compare(rows: list[Row]) -> None:
    """Fills in how many times the best of ours each row of a size takes: as best each can, eager, kernels alone."""
    for column, ratio in (
        ("best_ms", "times_ours"),
        ("median_ms", "eager_times_ours"),
        ("busy_ms", "busy_times_ours"),
    ):
        ours = [row[column] for row in rows if row["implementation"].startswith("highrank") and row[column]]
        for row in rows:
            row[ratio] = row[column] / min(ours) if ours and row[column] else None


def describe(row: Row) -> str:
    """A line as soon as it is measured."""
    text = f"  {row['size']} {row['implementation']}: "
    if row["median_ms"] is None:
        return text + row["status"]
    text += f"{row['median_ms']:,.3f} ms ({row['q25_ms']:,.3f} to {row['q75_ms']:,.3f})"
    if row["graph_ms"] is not None:
        text += f", {row['graph_ms']:,.3f} in a graph"
    if row["extra_mib"] is not None:
        text += f", {row['extra_mib']:,.0f} MiB extra"
    return text + ("" if row["status"] == "ok" else f" ({row['status']})")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).split(".")[1]
