"""Time of the paper's LSTM layers, forward and backward: `nn.LSTM`, and `ops/lstm` with its padding for cuDNN.

Layers are written as inputs, then hidden units: "280-960-960-620". There is no dropout: this is the recurrence alone.
`ops/lstm` starts from float32 weights, as training does, and casts them in every call.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from highrank.bench.benchmark import Benchmark, Job
from highrank.bench.table import CallRow, origin
from highrank.bench.timing import time_columns
from highrank.errors import UserError
from highrank.ops.lstm import lstm

LAYERS = {"ptb": "280-960-960-620", "wt2": "300-1150-1150-650"}
BATCHES = (("ptb", 12), ("ptb", 16), ("wt2", 15))  # 16 is the multiple of 8 that 12 and 15 are padded to
LENGTH = 70  # time steps


@dataclass(frozen=True)
class LayerShape:
    """The input of one measurement: a name, the layers as text, and the number of columns."""

    name: str
    layers: str
    batch: int
    length: int = LENGTH

    def sizes(self) -> list[int]:
        """Return the inputs and the hidden units of every layer."""
        parts = self.layers.split("-")
        if len(parts) < 2 or not all(part.isdigit() and int(part) > 0 for part in parts):
            raise UserError(f'"{self.layers}" are not layers: write inputs and hidden units as in {LAYERS["ptb"]}.')
        return [int(part) for part in parts]


@dataclass(frozen=True, kw_only=True)
class LSTMRow(CallRow):
    """One implementation at one shape."""

    size: str
    layers: str
    T: int
    batch: int
    implementation: str
    times_ours: float | None = None  # best_ms over that of `ops/lstm`


Maker = Callable[[LayerShape, torch.device], Callable[[], None]]  # returns a forward and backward pass


def choose_shapes(layers: str | None, batch: int | None, length: int = LENGTH) -> list[LayerShape]:
    """Return the paper's shapes, unless other layers or another number of columns is wanted."""
    if layers:
        shapes = [LayerShape("custom", layers, batch or 12, length)]
    elif batch:
        shapes = [LayerShape(name, text, batch, length) for name, text in LAYERS.items()]
    else:
        shapes = [LayerShape(name, LAYERS[name], columns, length) for name, columns in BATCHES]
    for shape in shapes:
        shape.sizes()
    return shapes


def lstm_benchmark(shapes: list[LayerShape], device: torch.device, rounds: int) -> Benchmark[LSTMRow]:
    """List the measurements of `ops/lstm` and `nn.LSTM` at every shape."""
    columns = {**origin(device), "device": device.type}
    ours = "highrank, float16, padded" if device.type == "cuda" else "highrank, float32"
    makers: dict[str, Maker] = {ours: _our_layers, "nn.LSTM, float32": partial(_torch_layers, torch.float32)}
    if device.type == "cuda":
        makers["nn.LSTM, float16"] = partial(_torch_layers, torch.float16)
    jobs = []
    for shape in shapes:
        for name, make in makers.items():
            row = LSTMRow(
                size=shape.name, layers=shape.layers, T=shape.length, batch=shape.batch, implementation=name, **columns
            )
            jobs.append(Job(row, partial(_measure, make, shape, device, rounds)))
    return Benchmark("lstm", LSTMRow, jobs, fill_ratios)


def _measure(make: Maker, shape: LayerShape, device: torch.device, rounds: int, row: LSTMRow) -> LSTMRow:
    return replace(row, **time_columns(make(shape, device), device, rounds, graph=device.type == "cuda"))


def fill_ratios(rows: list[LSTMRow]) -> list[LSTMRow]:
    """Fill in the ratios to `ops/lstm` at the same shape."""
    ours = {(row.layers, row.batch): row.best_ms for row in rows if row.implementation.startswith("highrank")}

    def ratio(row: LSTMRow) -> float | None:
        base = ours.get((row.layers, row.batch))
        return row.best_ms / base if row.best_ms and base else None

    return [replace(row, times_ours=ratio(row)) for row in rows]


def _torch_layers(dtype: torch.dtype, shape: LayerShape, device: torch.device) -> Callable[[], None]:
    """Make a stack of `nn.LSTM`, one per layer since the sizes differ."""
    torch.manual_seed(0)
    layers = [nn.LSTM(i, h, device=device, dtype=dtype) for i, h in itertools.pairwise(shape.sizes())]

    def stack(x: Tensor) -> Tensor:
        for layer in layers:
            x, _ = layer(x)
        return x

    return _forward_backward(stack, [p for layer in layers for p in layer.parameters()], shape, device, dtype)


def _our_layers(shape: LayerShape, device: torch.device) -> Callable[[], None]:
    """Make a stack of `ops/lstm` from float32 weights; under autocast to float16 on a GPU."""
    torch.manual_seed(0)
    layers = []
    for i, h in itertools.pairwise(shape.sizes()):
        shapes = ((4 * h, i), (4 * h, h), (4 * h,), (4 * h,))
        weights = [torch.empty(s, device=device).uniform_(-(h**-0.5), h**-0.5).requires_grad_() for s in shapes]
        zeros = torch.zeros(shape.batch, h, device=device)
        layers.append(((zeros, zeros), weights))

    def stack(x: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.float16, enabled=device.type == "cuda"):
            for state, (w_ih, w_hh, b_ih, b_hh) in layers:
                x, _ = lstm(x, state, w_ih, w_hh, b_ih, b_hh)
        return x

    return _forward_backward(stack, [w for _, weights in layers for w in weights], shape, device, torch.float32)


def _forward_backward(
    stack: Callable[[Tensor], Tensor],
    parameters: list[Tensor],
    shape: LayerShape,
    device: torch.device,
    dtype: torch.dtype,
) -> Callable[[], None]:
    """Return a call that runs the stack forward and backward on the same random input."""
    sizes = shape.sizes()
    x = torch.randn(shape.length, shape.batch, sizes[0], device=device, dtype=dtype, requires_grad=True)
    with torch.no_grad():
        out = stack(x)
    upstream = torch.randn_like(out) / 1e3

    def call() -> None:
        for leaf in (x, *parameters):
            leaf.grad = None
        stack(x).backward(upstream)

    return call
