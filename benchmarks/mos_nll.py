"""How fast and how large is `mos_nll`? Forward and backward, against the naive computation and its peers, in one run.

    python benchmarks/mos_nll.py                                   PTB's size in float32 on this machine's CPU
    python benchmarks/mos_nll.py --device cuda --dtype bfloat16 --size ptb --size wt2 --size 1b

Times are medians over rounds in which every implementation takes its turn, so a slow moment of the machine meets all
of them. Memory is the extra peak of one forward and backward, each implementation in a process of its own on the CPU.
Peers that are not installed are left out. Writes a CSV (--csv) with machine, versions and commit.
"""

import argparse
import importlib.util
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from highrank.ops.capture import prepare_capture
from highrank.ops.mos_nll import mos_nll
from highrank.training.provenance import provenance
from record import write_csv

SIZES = {  # N tokens, K components, D embedding size, V vocabulary
    "ptb": (840, 15, 280, 10_000),
    "wt2": (1050, 15, 300, 33_278),
    "1b": (2100, 7, 900, 100_000),
    "tiny": (32, 3, 37, 501),
}
Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def naive(h: Tensor, log_pi: Tensor, w: Tensor, b: Tensor, y: Tensor) -> Tensor:
    """As the released code does it: all (N, K, V) probabilities, mixed, then the logarithm."""
    p = torch.softmax(F.linear(h, w.to(h.dtype), b.to(h.dtype)).float(), dim=-1)
    mixed = (p * log_pi.exp()[:, :, None]).sum(1)
    return F.nll_loss(torch.log(mixed + 1e-8), y, reduction="none")


def composed(row_loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """MoS through a per-row linear cross-entropy on N K rows."""

    def loss(h: Tensor, log_pi: Tensor, w: Tensor, b: Tensor, y: Tensor) -> Tensor:
        n, k, d = h.shape
        rows = row_loss(h.reshape(n * k, d), w.to(h.dtype), b.to(h.dtype), y.repeat_interleave(k)).float()
        return -torch.logsumexp(log_pi - rows.view(n, k), dim=1)

    return loss


def implementations(device: str, dtype: torch.dtype) -> dict[str, Callable[..., Tensor]]:
    found: dict[str, Callable[..., Tensor]] = {"naive": naive}
    if hasattr(F, "linear_cross_entropy"):
        variants = {"linear_cross_entropy": None, "linear_cross_entropy, chunked": torch.nn.LinearCrossEntropyOptions()}
        for name, options in variants.items():
            found[name] = composed(
                lambda a, w, b, y, options=options: F.linear_cross_entropy(
                    a, w, y, linear_bias=b, reduction="none", options=options
                )
            )
    if device == "cuda" and importlib.util.find_spec("cut_cross_entropy"):
        from cut_cross_entropy import linear_cross_entropy

        def exact(a: Tensor, w: Tensor, b: Tensor, y: Tensor) -> Tensor:
            # Released versions take no bias: it rides along as a column against ones, filled up to a multiple of 16.
            more = -(a.shape[1] + 1) % 16
            a = torch.cat([a, a.new_ones(len(a), 1), a.new_zeros(len(a), more)], dim=1)
            w = torch.cat([w, b[:, None], w.new_zeros(len(w), more)], dim=1)
            return linear_cross_entropy(a, w, y, reduction="none", impl="cce_exact")

        found["cut-cross-entropy, exact"] = composed(exact)
    if device == "cuda" and importlib.util.find_spec("liger_kernel"):
        from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

        found["Liger"] = composed(
            lambda a, w, b, y: liger_fused_linear_cross_entropy(a, w, y, bias=b, reduction="none")
        )
    found["highrank, chunked"] = lambda *inputs: mos_nll(*inputs, impl="chunked")
    if device == "cuda":
        found["highrank, triton"] = lambda *inputs: mos_nll(*inputs, impl="triton")
    return found


def make(size: str, device: str, dtype: torch.dtype) -> Inputs:
    n, k, d, v = SIZES[size]
    torch.manual_seed(0)
    h = torch.randn(n, k, d, device=device).tanh().to(dtype).requires_grad_()
    log_pi = torch.randn(n, k, device=device).log_softmax(-1).requires_grad_()
    w = (torch.randn(v, d, device=device) * 0.1).to(dtype).requires_grad_()
    b = (torch.randn(v, device=device) * 0.1).to(dtype).requires_grad_()
    return h, log_pi, w, b, torch.randint(v, (n,), device=device)


def step(loss: Callable[..., Tensor], inputs: Inputs) -> None:
    for x in inputs[:4]:
        x.grad = None
    loss(*inputs).mean().backward()


def timed(loss: Callable[..., Tensor], inputs: Inputs, device: str) -> float:
    """Milliseconds of one forward and backward."""
    if device == "cuda":
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        step(loss, inputs)
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end)
    began = time.perf_counter()
    step(loss, inputs)
    return (time.perf_counter() - began) * 1e3


def graphed(loss: Callable[..., Tensor], inputs: Inputs) -> float:
    """Milliseconds of one forward and backward replayed as a CUDA graph."""
    prepare_capture(inputs[0].device)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(loss, inputs)
    torch.cuda.current_stream().wait_stream(stream)
    for x in inputs[:4]:
        x.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(loss, inputs)
    times = []
    for _ in range(10):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(5):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 5)
    return statistics.median(times)


def memory(name: str, size: str, device: str, dtype: torch.dtype) -> float:
    """MiB at the peak of one forward and backward, beyond inputs and their gradients."""
    if device == "cuda":
        loss, inputs = implementations(device, dtype)[name], make(size, device, dtype)
        step(loss, inputs)  # the gradients exist from here on
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        gradients = sum(x.numel() * x.element_size() for x in inputs[:4])
        step(loss, inputs)
        # `step` drops the old gradients first, so the new ones are within the peak but not beyond `before`.
        assert gradients <= before
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    command = [sys.executable, __file__, "--measure", name, "--size", size, "--dtype", str(dtype).split(".")[1]]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def measure(name: str, size: str, dtype: torch.dtype) -> None:
    """In a process of its own: print how far the resident memory rose above inputs and gradients."""
    loss, inputs = implementations("cpu", dtype)[name], make(size, "cpu", dtype)
    for x in inputs[:4]:
        x.grad = torch.ones_like(x)  # touched, so that they are resident before the measurement
    warm = make("tiny", "cpu", dtype)
    step(loss, warm)  # libraries, threads
    before = _peak_rss()
    gradients = [x.grad for x in inputs[:4]]
    step(loss, inputs)
    del gradients  # held until here: the peak then exceeds `before` by the new gradients too, subtracted below
    new = sum(x.numel() * x.element_size() for x in inputs[:4])
    print((_peak_rss() - before - new) / 2**20)


def _peak_rss() -> int:
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", action="append", choices=SIZES)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    dtype, device = getattr(torch, arguments.dtype), arguments.device
    if arguments.measure:
        measure(arguments.measure, arguments.size[0], dtype)
        return

    rounds = arguments.rounds or (5 if device == "cpu" else 30)
    origin = provenance(torch.device(device))
    rows = []
    for size in arguments.size or ["ptb"]:
        n, k, d, v = SIZES[size]
        inputs, losses = make(size, device, dtype), implementations(device, dtype)
        times: dict[str, list[float]] = {name: [] for name in losses}
        for i in range(rounds + 1):
            for name, loss in losses.items():
                elapsed = timed(loss, inputs, device)
                if i > 0:  # the first round warms up
                    times[name].append(elapsed)
        # Peers that ask the device for a value cannot be captured, and trying leaves torch unable to go on.
        capturable = [name for name in losses if name.startswith(("highrank", "naive"))] if device == "cuda" else []
        replayed = {name: graphed(losses[name], inputs) if name in capturable else None for name in losses}
        best = {name: min(statistics.median(t), replayed[name] or 1e9) for name, t in times.items()}
        del inputs
        ours = min(ms for name, ms in best.items() if name.startswith("highrank"))
        gflop = 2 * n * k * d * v / 1e9
        print(f"\n{size}: N={n} K={k} D={d} V={v:,}, {arguments.dtype}, forward and backward, {origin['machine']}")
        print(f"one matrix product is {gflop:.0f} GFLOP; three are the least, {3 * gflop:.0f} GFLOP")
        print(
            f"{'implementation':32} {'eager ms':>9} {'spread':>8} {'graph ms':>9} "
            f"{'x ours':>7} {'GFLOP/s':>9} {'MiB':>7}"
        )
        for name, values in times.items():
            ms, spread, mib = statistics.median(values), max(values) - min(values), memory(name, size, device, dtype)
            rate = 3 * gflop / best[name] * 1e3  # of the three products that are needed at least
            graph = f"{replayed[name]:9.3f}" if replayed[name] else f"{'-':>9}"
            times_ours = best[name] / ours
            print(f"{name:32} {ms:9.3f} {spread:8.3f} {graph} {times_ours:7.2f} {rate:9,.0f} {mib:7,.0f}", flush=True)
            rows.append({"size": size, "N": n, "K": k, "D": d, "V": v, "dtype": arguments.dtype, "device": device,
                         "implementation": name, "median_ms": ms, "min_ms": min(values), "max_ms": max(values),
                         "graph_ms": replayed[name], "rounds": rounds, "extra_mib": mib, **origin})  # fmt: skip
    if arguments.csv:
        write_csv(arguments.csv, rows)


if __name__ == "__main__":
    main()
