"""Time of the paper's LSTM layers, forward and backward: `nn.LSTM`, and `ops/lstm` with its padding for cuDNN.

There is no dropout: this is the recurrence alone. `ops/lstm` starts from float32 weights, as training does, and casts
them in every call.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from highrank.bench.measure import time_call
from highrank.bench.table import Benchmark, CallRow, fill_times_ours
from highrank.ops.lstm import lstm
from highrank.runs.provenance import provenance

Layer = Callable[[Tensor], tuple[Tensor, object]]
LENGTH = 70  # time steps
SHAPES = {  # inputs, then hidden units of every layer; columns (16 is the multiple of 8 that 12 and 15 are padded to)
    "ptb": ((280, 960, 960, 620), 12),
    "ptb-16": ((280, 960, 960, 620), 16),
    "wt2": ((300, 1150, 1150, 650), 15),
}


@dataclass(frozen=True, kw_only=True)
class LSTMRow(CallRow):
    """One implementation at one shape."""

    shown: ClassVar = ("size", "implementation", "layers", "batch", "median_ms", "graph_ms", "times_ours", "status")

    layers: str
    T: int
    batch: int


def lstm_benchmark(device: torch.device, rounds: int) -> Benchmark[LSTMRow]:
    """List the measurements of `ops/lstm` and `nn.LSTM` at every shape."""
    columns = {**provenance(device), "device": device.type, "T": LENGTH}
    gpu_names = ("highrank, float16, padded", "nn.LSTM, float32", "nn.LSTM, float16")
    names = gpu_names if device.type == "cuda" else ("highrank, float32", "nn.LSTM, float32")
    jobs = []
    for size, (layers, batch) in SHAPES.items():
        for name in names:
            row = LSTMRow(size=size, layers="-".join(map(str, layers)), batch=batch, implementation=name, **columns)
            jobs.append((row, partial(_measure, layers, device, rounds)))
    return Benchmark("lstm", jobs, fill_times_ours)


def _measure(sizes: tuple[int, ...], device: torch.device, rounds: int, row: LSTMRow) -> LSTMRow:
    """Time a forward and backward pass of all layers."""
    torch.manual_seed(0)
    ours = row.implementation.startswith("highrank")
    dtype = torch.float16 if row.implementation == "nn.LSTM, float16" else torch.float32
    layers: list[Layer] = []
    leaves: list[Tensor] = []
    for inputs, hidden in itertools.pairwise(sizes):
        module = nn.LSTM(inputs, hidden, device=device, dtype=dtype)
        layer, weights = _our_layer(module, row.batch) if ours else (module, list(module.parameters()))
        layers.append(layer)
        leaves += weights

    def forward(x: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.float16, enabled=ours and device.type == "cuda"):
            for layer in layers:
                x, _ = layer(x)
        return x

    x = torch.randn(row.T, row.batch, sizes[0], device=device, dtype=dtype, requires_grad=True)
    upstream = torch.randn_like(forward(x)) / 1e3

    def forward_backward() -> None:
        for leaf in (x, *leaves):
            leaf.grad = None
        forward(x).backward(upstream)

    return replace(row, **time_call(forward_backward, device, rounds, graph=True))


def _our_layer(module: nn.LSTM, batch: int) -> tuple[Layer, list[Tensor]]:
    """Return `ops/lstm` with the weights of a module, and these weights."""
    # Clones, because nn.LSTM keeps all weights of a layer in one tensor.
    weights: list[Tensor] = [nn.Parameter(weight.detach().clone()) for weight in module.parameters()]
    w_ih, w_hh, b_ih, b_hh = weights
    zero = torch.zeros(batch, module.hidden_size, device=w_ih.device)
    return partial(lstm, state=(zero, zero), w_ih=w_ih, w_hh=w_hh, b_ih=b_ih, b_hh=b_hh), weights
