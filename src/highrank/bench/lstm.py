"""The paper's three LSTM layers, forward and backward: torch's own, and `ops/lstm` with its padding to cuDNN's kernel.

Shapes: T = 70 time steps, B columns, layers as in "280-960-960-620" (inputs, then hidden units). No dropout: this is
the recurrence alone. `ops/lstm` starts from float32 weights, as training does, and casts them in every call.
"""

import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from highrank.bench.record import Record, Row, Say, origin
from highrank.bench.timing import OUT_OF_TIME, Clock, Timing, graphed, in_turns, reason, release
from highrank.bench.timing import time_columns as columns
from highrank.errors import UserError
from highrank.ops.lstm import lstm

LAYERS = {"ptb": "280-960-960-620", "wt2": "300-1150-1150-650"}
SHAPES = (("ptb", 12), ("ptb", 16), ("wt2", 15))  # and columns; 16 is the multiple of 8 that 12 and 15 are padded to
LENGTH = 70


def parse_layers(text: str) -> tuple[int, ...]:
    parts = text.split("-")
    if len(parts) < 2 or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise UserError(f'"{text}" are not layers: write inputs and hidden units as in {LAYERS["ptb"]}.')
    return tuple(map(int, parts))


def choose_shapes(layers: str | None, batch: int | None) -> list[tuple[str, str, int]]:
    """(A name, layers, columns): the paper's, unless other layers or columns are asked for."""
    if layers:
        parse_layers(layers)
        return [("custom", layers, batch or 12)]
    if batch:
        return [(name, text, batch) for name, text in LAYERS.items()]
    return [(name, LAYERS[name], default) for name, default in SHAPES]


def measure(
    record: Record,
    shapes: list[tuple[str, str, int]],
    device: torch.device,
    *,
    length: int = LENGTH,
    rounds: int,
    clock: Clock,
    say: Say,
) -> None:
    """`shapes` are (a name, layers, columns); adds a row an implementation and shape."""
    begun = origin(device)
    for name, layers, batch in shapes:
        sizes = parse_layers(layers)
        about = {"size": name, "layers": layers, "T": length, "batch": batch, "device": device.type}
        calls: dict[str, Callable[[], None]] = {}
        notes: dict[str, str] = {}
        for implementation, make in _implementations(device).items():
            if clock.over():
                notes[implementation] = OUT_OF_TIME
                continue
            try:
                calls[implementation] = make(sizes, length, batch, device)
            except Exception as error:
                notes[implementation] = reason(error)
        seconds = 20 if device.type == "cpu" else 3
        timings, failures = in_turns(calls, device, rounds, seconds)
        notes |= failures
        rows = []
        for implementation in _implementations(device):
            graph: Timing | None = None
            if device.type == "cuda" and implementation in timings:
                try:
                    graph = graphed(calls[implementation], device, rounds, seconds=2)
                except Exception as error:
                    notes[implementation] = f"no graph, {reason(error)}"
            rows.append(_row(about, implementation, timings.get(implementation), graph, notes.get(implementation)))
        ours = next((row["best_ms"] for row in rows if row["implementation"].startswith("highrank")), None)
        for row in rows:
            row["times_ours"] = row["best_ms"] / ours if ours and row["best_ms"] else None
            record.add(row | begun)
            say(describe(row))
        del calls
        release(device)


Maker = Callable[[tuple[int, ...], int, int, torch.device], Callable[[], None]]


def _implementations(device: torch.device) -> dict[str, Maker]:
    if device.type == "cpu":
        return {"highrank, float32": _ours(None), "nn.LSTM, float32": _torchs(torch.float32)}
    return {
        "highrank, float16, padded": _ours(torch.float16),
        "nn.LSTM, float32": _torchs(torch.float32),
        "nn.LSTM, float16": _torchs(torch.float16),
    }


def _torchs(dtype: torch.dtype) -> Maker:
    """A stack of nn.LSTM, one a layer since the sizes differ."""

    def make(sizes: tuple[int, ...], length: int, batch: int, device: torch.device) -> Callable[[], None]:
        torch.manual_seed(0)
        layers = [nn.LSTM(i, h, device=device, dtype=dtype) for i, h in itertools.pairwise(sizes)]
        x = torch.randn(length, batch, sizes[0], device=device, dtype=dtype, requires_grad=True)
        upstream = torch.randn(length, batch, sizes[-1], device=device, dtype=dtype) / 1e3

        def call() -> None:
            out: Tensor = x
            for layer in layers:
                out, _ = layer(out)
            _backward(out, upstream, [x, *(p for layer in layers for p in layer.parameters())])

        return call

    return make


def _ours(autocast: torch.dtype | None) -> Maker:
    def make(sizes: tuple[int, ...], length: int, batch: int, device: torch.device) -> Callable[[], None]:
        torch.manual_seed(0)

        def uniform(*shape: int, bound: float) -> Tensor:
            return torch.empty(*shape, device=device).uniform_(-bound, bound).requires_grad_()

        weights, states = [], []
        for i, h in itertools.pairwise(sizes):
            shapes = ((4 * h, i), (4 * h, h), (4 * h,), (4 * h,))
            weights.append([uniform(*shape, bound=h**-0.5) for shape in shapes])
            states.append((torch.zeros(batch, h, device=device), torch.zeros(batch, h, device=device)))
        x = torch.randn(length, batch, sizes[0], device=device, requires_grad=True)
        upstream = torch.randn(length, batch, sizes[-1], device=device, dtype=autocast or torch.float32) / 1e3

        def call() -> None:
            out: Tensor = x
            with torch.autocast(device.type, autocast, enabled=autocast is not None):
                for state, (w_ih, w_hh, b_ih, b_hh) in zip(states, weights, strict=True):
                    out, _ = lstm(out, state, w_ih, w_hh, b_ih, b_hh)
            _backward(out, upstream, [x, *(w for layer in weights for w in layer)])

        return call

    return make


def _backward(out: Tensor, upstream: Tensor, leaves: list[Tensor]) -> None:
    for leaf in leaves:
        leaf.grad = None
    out.backward(upstream.to(out.dtype))


def _row(about: Row, implementation: str, eager: Timing | None, graph: Timing | None, note: str | None) -> Row:
    best = min((t.median_ms for t in (eager, graph) if t is not None), default=None)
    graph_columns = {"graph_ms": graph and graph.median_ms, **columns(graph, "graph_", ("q25_ms", "q75_ms"))}
    row = {**about, "implementation": implementation, "status": note or "ok", **columns(eager), **graph_columns}
    return row | {"best_ms": best, "times_ours": None}


def describe(row: Row) -> str:
    text = f"  {row['size']} {row['layers']}, batch {row['batch']}, {row['implementation']}: "
    if row["median_ms"] is None:
        return text + row["status"]
    graph = f", {row['graph_ms']:,.3f} in a graph" if row["graph_ms"] is not None else ""
    note = "" if row["status"] == "ok" else f" ({row['status']})"
    return f"{text}{row['median_ms']:,.3f} ms ({row['q25_ms']:,.3f} to {row['q75_ms']:,.3f}){graph}{note}"
