"""Time and extra memory of the loss of a mixture of softmaxes, forward and backward, at one size or over K, V and N.

Over K, V and N, the mixture is compared with one softmax at the same N, D and V: the same op at K = 1, and torch's own
`F.cross_entropy` on all logits.
"""

import importlib.metadata
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch

from highrank.bench import peers
from highrank.bench.measure import measure_extra_mib, time_call
from highrank.bench.peers import Implementation, Shape
from highrank.bench.table import Benchmark, CallRow, fill_times_ours
from highrank.errors import UserError, nearest
from highrank.memory import require_bytes
from highrank.runs.provenance import provenance

SIZES: dict[str, Shape] = {  # N tokens, K components, D embedding size, V vocabulary: a window of the paper's models
    "ptb": (840, 15, 280, 10_000),
    "wt2": (1050, 15, 300, 33_278),
    "1b": (2100, 7, 900, 100_000),
}
SWEEPS = {
    "K": (1, 2, 4, 8, 15, 32, 64),
    "V": (1_000, 4_000, 16_000, 64_000, 256_000),
    "N": (70, 210, 840, 3_360, 13_440),
}
LLM_SIZES: tuple[Shape, ...] = tuple((4096, k, d, v) for v in (128_000, 256_000) for d in (2048, 4096) for k in (2, 4))
CPU_SWEEPS = {**SWEEPS, "N": (16, 64, 256, 1_024)}
MAX_ERROR = 0.05  # relative; bfloat16 alone makes at most 0.005, a wrong gradient about 1
BYTES_PER_LOGIT = 16  # at most: logits, their exponentials and gradients, where an implementation builds them all


@dataclass(frozen=True, kw_only=True)
class LossRow(CallRow):
    """One implementation at one size, which is a name, NxKxDxV, or "K=8" where only K differs from the base."""

    shown: ClassVar = ("size", "implementation", "median_ms", "graph_ms", "times_ours", "extra_mib", "error", "status")

    N: int
    K: int
    D: int
    V: int
    dtype: str
    version: str | None = None  # of the implementation's package
    extra_mib: float | None = None
    error: float | None = None  # of the loss or its worst gradient, against float64


def loss_benchmark(sizes: str | None, dtype: str, device: torch.device, rounds: int) -> Benchmark[LossRow]:
    """List the measurements of all implementations at some sizes, by default the paper's (on a CPU, the smallest)."""
    shapes = parse_sizes(sizes or ("ptb,wt2,1b" if device.type == "cuda" else "ptb"))
    usable = [one for one in peers.IMPLEMENTATIONS if device.type == "cuda" or not one.gpu_only]
    cases = [(size, shape, one) for size, shape in shapes.items() for one in usable]
    return _benchmark("mos_nll", cases, dtype, device, rounds)


def scaling_benchmark(dtype: str, device: torch.device, rounds: int) -> Benchmark[LossRow]:
    """List the measurements of a mixture and of one softmax while K, V or N takes each of its values."""
    cases = []
    for name, values in (SWEEPS if device.type == "cuda" else CPU_SWEEPS).items():
        for value in values:
            base = {"N": 840 if device.type == "cuda" else 64, "K": 15, "V": 10_000, name: value}
            for one in (peers.MIXTURE, peers.ONE_SOFTMAX, peers.TORCH_SOFTMAX):
                k = base["K"] if one is peers.MIXTURE else 1
                cases.append((f"{name}={value}", (base["N"], k, 280, base["V"]), one))
    return _benchmark("mos_nll_scaling", cases, dtype, device, rounds)


def llm_benchmark(
    dtype: str, device: torch.device, rounds: int, shapes: Sequence[Shape] = LLM_SIZES
) -> Benchmark[LossRow]:
    """List the measurements of a mixture on a large language model, beside its plain softmax and other projects."""
    names = {"highrank, triton", peers.LARGE, "cut-cross-entropy, exact", "Liger"}
    mixtures = [one for one in peers.IMPLEMENTATIONS if one.name in names] if device.type == "cuda" else [peers.MIXTURE]
    softmaxes = dict.fromkeys((n, 1, d, v) for n, _, d, v in shapes)
    cases = [(shape, one) for shape in softmaxes for one in (peers.TORCH_SOFTMAX, peers.ONE_SOFTMAX)]
    cases += [(shape, one) for one in mixtures for shape in shapes]  # ours first
    return _benchmark(
        "mos_nll_llm",
        [("x".join(map(str, shape)), shape, replace(one, graph=False)) for shape, one in cases],
        dtype,
        device,
        rounds,
    )


def parse_sizes(text: str) -> dict[str, Shape]:
    """Parse names of `SIZES` and sizes NxKxDxV, separated by commas: 'ptb,840x15x280x10000'."""
    sizes = {}
    for name in map(str.strip, text.split(",")):
        numbers = re.fullmatch("x".join([r"([1-9]\d*)"] * 4), name)
        if name not in SIZES and not numbers:
            raise UserError(f'"{name}" is not a size (write a name or NxKxDxV){nearest(name, SIZES)}')
        sizes[name] = (int(numbers[1]), int(numbers[2]), int(numbers[3]), int(numbers[4])) if numbers else SIZES[name]
    return sizes


def _benchmark(
    name: str, cases: list[tuple[str, Shape, Implementation]], dtype: str, device: torch.device, rounds: int
) -> Benchmark[LossRow]:
    if dtype == "auto":
        dtype = "bfloat16" if device.type == "cuda" else "float32"
    columns = {**provenance(device), "device": device.type, "dtype": dtype}
    jobs = []
    for size, (n, k, d, v), one in cases:
        row = LossRow(size=size, N=n, K=k, D=d, V=v, implementation=one.name, **columns)
        jobs.append((row, partial(_measure, one, device, getattr(torch, dtype), rounds)))
    return Benchmark(name, jobs, fill_times_ours)


def _measure(one: Implementation, device: torch.device, dtype: torch.dtype, rounds: int, row: LossRow) -> LossRow:
    """Time an implementation and measure its memory, if its loss and gradients are correct and it fits."""
    shape = (row.N, row.K, row.D, row.V)
    if one.builds_logits:
        require_bytes(row.N * row.K * row.V * BYTES_PER_LOGIT, device, one.name, "choose a smaller size")
    loss = one.load()
    error = peers.relative_error(loss, shape, device, dtype)
    if not error <= MAX_ERROR:  # also true for NaN
        raise ArithmeticError(f"its loss or gradients have a relative error of {error:.2g}")
    call = partial(peers.forward_backward, loss, peers.make_inputs(shape, device, dtype))
    times = time_call(call, device, rounds, one.graph)
    memory = measure_extra_mib(call, device)
    version = importlib.metadata.version(one.package) if one.package else None
    return replace(row, **times, extra_mib=memory, error=error, version=version)
