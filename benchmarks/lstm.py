"""How fast are the paper's LSTM layers, forward and backward? `ops/lstm` beside `nn.LSTM`.

    python benchmarks/lstm.py

There is no dropout: this is the recurrence alone. `ops/lstm` pads for cuDNN's persistent kernel on a GPU; it starts
from float32 weights, as training does, and casts them in every call.
"""

import itertools
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from highrank.ops.lstm import lstm
from highrank.runs.provenance import provenance
from measure import Row, failures_in_status, fill_times_ours, make_parser, print_row, time_call, write_csv

Layer = Callable[[Tensor], tuple[Tensor, object]]
SHAPES = {  # inputs, then hidden units of every layer; columns; time steps
    "ptb": ((280, 960, 960, 620), 12, 70),
    "ptb-16": ((280, 960, 960, 620), 16, 70),  # 16: the multiple of 8 that 12 and 15 are padded to
    "wt2": ((300, 1150, 1150, 650), 15, 70),
    "text8": ((1024, 1024), 128, 200),
    "text8-mos7": ((510, 910), 128, 200),
}
GPU_NAMES = ("highrank, float16, padded", "nn.LSTM, float32", "nn.LSTM, float16")
CPU_NAMES = ("highrank, float32", "nn.LSTM, float32")


def measure(name: str, sizes: tuple[int, ...], batch: int, length: int, device: torch.device, rounds: int) -> Row:
    """Time a forward and backward pass of all layers."""
    torch.manual_seed(0)
    ours = name.startswith("highrank")
    dtype = torch.float16 if name == "nn.LSTM, float16" else torch.float32
    layers: list[Layer] = []
    leaves: list[Tensor] = []
    for inputs, hidden in itertools.pairwise(sizes):
        module = nn.LSTM(inputs, hidden, device=device, dtype=dtype)
        layer, weights = our_layer(module, batch) if ours else (module, list(module.parameters()))
        layers.append(layer)
        leaves += weights

    def forward(x: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.float16, enabled=ours and device.type == "cuda"):
            for layer in layers:
                x, _ = layer(x)
        return x

    x = torch.randn(length, batch, sizes[0], device=device, dtype=dtype, requires_grad=True)
    upstream = torch.randn_like(forward(x)) / 1e3

    def forward_backward() -> None:
        for leaf in (x, *leaves):
            leaf.grad = None
        forward(x).backward(upstream)

    return time_call(forward_backward, device, rounds, graph=True)


def our_layer(module: nn.LSTM, batch: int) -> tuple[Layer, list[Tensor]]:
    """Return `ops/lstm` with the weights of a module, and these weights."""
    # Clones, because nn.LSTM keeps all weights of a layer in one tensor.
    weights: list[Tensor] = [nn.Parameter(weight.detach().clone()) for weight in module.parameters()]
    w_ih, w_hh, b_ih, b_hh = weights
    zero = torch.zeros(batch, module.hidden_size, device=w_ih.device)
    return partial(lstm, state=(zero, zero), w_ih=w_ih, w_hh=w_hh, b_ih=b_ih, b_hh=b_hh), weights


def main() -> None:
    args = make_parser(__doc__, "lstm.csv", rounds=True).parse_args()
    origin = provenance(args.device)
    rows: list[Row] = []
    for size, (sizes, batch, length) in SHAPES.items():
        for name in GPU_NAMES if args.device.type == "cuda" else CPU_NAMES:
            row: Row = {"size": size, "implementation": name, "layers": "-".join(map(str, sizes)), "batch": batch}
            row |= {"T": length, "device": args.device.type}
            with failures_in_status(row):
                row |= measure(name, sizes, batch, length, args.device, args.rounds)
            rows.append(row)
            fill_times_ours(rows)
            write_csv(args.csv, [{**row, **origin} for row in rows])
            print_row(row, "size", "implementation", "status", "median_ms", "graph_ms", "times_ours")
    print(f"Written to {args.csv}")


if __name__ == "__main__":
    main()
