"""Throw-away: which configuration of the Triton mos_nll is the fastest on this GPU, and is it right?

    PYTHONPATH=src python benchmarks/probe_kernel.py [--sizes ptb wt2 1b] [--budget 110] [--no-sweep]

Prints, per size: errors against float64, eager and CUDA-graph times, extra peak memory, what skipping saves, the
library products alone, then forward and dlogits+products for a list of configurations (graph replays: no launch cost).
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

from highrank.ops.mos_nll import chunked, kernel
from highrank.ops.mos_nll.kernel import Config

SIZES = {"ptb": (840, 15, 280, 10_000), "wt2": (1050, 15, 300, 33_278), "1b": (2100, 7, 900, 100_000)}
START = time.monotonic()
#          M    N   D  warps stages tma flatten programs
FORWARD = [
    Config(128, 128, 64, 4, 3, True, True, 2),
    Config(128, 128, 64, 4, 3, True, False, 2),
    Config(128, 128, 32, 4, 4, True, True, 2),
    Config(128, 256, 64, 8, 3, True, True, 1),
    Config(128, 256, 64, 8, 4, True, True, 1),
    Config(128, 256, 64, 8, 3, True, False, 1),
    Config(128, 256, 32, 8, 4, True, True, 1),
    Config(128, 128, 64, 8, 3, True, True, 1),
    Config(64, 256, 64, 4, 2, True, True, 2),
    Config(256, 128, 64, 8, 3, True, True, 1),
    Config(128, 128, 64, 8, 3, False, True, 1),
]
BACKWARD = [
    Config(128, 128, 64, 4, 2, True, True, 2),
    Config(128, 128, 64, 4, 2, True, False, 2),
    Config(128, 128, 32, 4, 4, True, True, 2),
    Config(128, 128, 32, 4, 3, True, True, 2),
    Config(128, 256, 64, 8, 3, True, True, 1),
    Config(128, 256, 64, 8, 3, True, False, 1),
    Config(128, 256, 32, 8, 3, True, True, 1),
    Config(128, 128, 64, 8, 2, True, True, 1),
    Config(128, 64, 64, 4, 3, True, True, 2),
    Config(64, 128, 64, 4, 3, True, True, 2),
    Config(256, 128, 64, 8, 2, True, True, 1),
    Config(128, 128, 64, 8, 3, False, True, 1),
]


def median_ms(call: Callable[[], object], repeat: int = 15) -> float:
    for _ in range(3):
        call()
    times = []
    for _ in range(repeat):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def graphed(call: Callable[[], object]) -> Callable[[], object]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def inputs_of(size: tuple[int, int, int, int]) -> tuple[list[Tensor], Tensor, Tensor]:
    n, k, d, v = size
    torch.manual_seed(0)
    h = torch.randn(n, k, d, device="cuda").tanh()
    log_pi = torch.randn(n, k, device="cuda").log_softmax(-1)
    weight, bias = torch.randn(v, d, device="cuda") / d**0.5 * 2, torch.randn(v, device="cuda")
    leaves = [x.to(torch.bfloat16).requires_grad_() for x in (h, log_pi, weight, bias)]
    return leaves, torch.randint(v, (n,), device="cuda"), torch.rand(n, device="cuda") / n


def errors(leaves: list[Tensor], targets: Tensor, upstream: Tensor) -> None:
    def run(function, dtype: torch.dtype) -> list[Tensor]:
        own = [x.detach().to(dtype).requires_grad_() for x in leaves]
        nll = function(*own, targets)
        return [nll.detach(), *torch.autograd.grad(nll, own, upstream.to(nll.dtype))]

    truth = run(chunked.mos_nll, torch.float64)
    for name, function in (("kernel", kernel.mos_nll), ("chunked", chunked.mos_nll)):
        found = run(function, torch.bfloat16)
        ratios = [((x.double() - y).norm() / y.norm()).item() for x, y in zip(found, truth, strict=True)]
        print(f"  {name:8s} bf16 relative error nll, dh, dlog_pi, dW, db:", *(f"{x:.1e}" for x in ratios))


def whole(leaves: list[Tensor], targets: Tensor, upstream: Tensor) -> None:
    upstream = torch.full_like(upstream, 1 / len(upstream))  # a mean, where the chunked implementation is at its best

    def both(skip: bool = True) -> None:
        torch.autograd.grad(kernel.mos_nll(*leaves, targets, skip=skip), leaves, upstream)

    def rival() -> None:
        torch.autograd.grad(chunked.mos_nll(*leaves, targets), leaves, upstream)

    with torch.no_grad():
        forward = median_ms(lambda: kernel.mos_nll(*leaves, targets))
    for skip in (True, False):
        eager = median_ms(lambda skip=skip: both(skip))
        print(f"  skip={skip!s:5} forward {forward:.3f}  both eager {eager:.3f}", end="")
        print(f"  both in a graph {median_ms(graphed(lambda skip=skip: both(skip))):.3f} ms")
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    both()
    extra = torch.cuda.max_memory_allocated() - before - sum(x.numel() * x.element_size() for x in leaves)
    print(f"  extra peak memory {extra / 2**20:.1f} MiB   chunked {median_ms(rival, 7):.3f} ms")
    mostly = leaves[1].detach().clone()
    mostly[:, 3:] = -60.0  # three components of K left, as in a trained model
    mostly.requires_grad_()
    sparse = [leaves[0], mostly, *leaves[2:]]
    print("  three components responsible: both eager", end="")
    for skip in (True, False):
        ms = median_ms(
            lambda skip=skip: torch.autograd.grad(kernel.mos_nll(*sparse, targets, skip=skip), sparse, upstream)
        )
        print(f"  skip={skip} {ms:.3f}", end="")
    print(" ms", flush=True)


def library(size: tuple[int, int, int, int], columns: int = 1280) -> None:
    """Products of one slab, and what they would come to for the whole vocabulary."""
    n, k, d, v = size
    m, width = n * k, -(-d // 8) * 8
    shapes = ((m, columns), (columns, width), (m, width))
    dz, w, a = (torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for shape in shapes)
    dh = torch.zeros(m, width, device="cuda")
    calls = {
        "z = a w^T, bf16 out": lambda: a @ w.T,
        "dh = dz w": lambda: torch.mm(dz, w, out_dtype=torch.float32, out=dh),
        "dh += dz w": lambda: torch.addmm(dh, dz, w, out_dtype=torch.float32, out=dh),
        "dh.add_(dz w)": lambda: dh.add_(torch.mm(dz, w, out_dtype=torch.float32)),
        "dW = dz^T a": lambda: torch.mm(dz.T, a, out_dtype=torch.float32),
    }
    for name, call in calls.items():
        ms = median_ms(graphed(lambda call=call: [call() for _ in range(8)])) / 8
        tflops = 2 * m * width * columns / ms / 1e9
        print(f"  library {name:20s} {ms * 1000:6.1f} us a slab of {columns} words, {tflops:.0f} TFLOP/s", end="")
        print(f", {ms * v / columns:.3f} ms for V", flush=True)


def sweep(size: tuple[int, int, int, int], leaves: list[Tensor], targets: Tensor, budget: float) -> None:
    n, k, d, v = size
    width = -(-d // 8) * 8
    with torch.no_grad():
        h, log_pi, weight, bias = leaves
        rows = kernel._operand(h.reshape(n * k, d), torch.bfloat16, width)
        offset = bias.float()
        flops = 2 * n * k * d * v
        best: dict[str, tuple[float, Config]] = {}

        def attempt(kind: str, config: Config, call: Callable[[], object]) -> None:
            if time.monotonic() - START > budget:
                return
            try:
                ms = median_ms(graphed(call), 7)
            except Exception as error:  # a configuration that does not fit is a finding, not a failure
                print(f"  {kind:8s} {tuple(config)} failed: {type(error).__name__} {str(error)[:90]}", flush=True)
                torch.cuda.synchronize()
                return
            best[kind] = min(best.get(kind, (ms, config)), (ms, config))
            print(f"  {kind:8s} {tuple(config)[:8]} slab {config.slab_bytes >> 20:3d} MiB: {ms:.3f} ms", end="")
            print(f"  ({flops / ms / 1e9:.0f} TFLOP/s)" if kind == "forward" else "", flush=True)

        peaks, totals = kernel._partial_sums(rows, weight, offset, FORWARD[0])
        _, r, peak, total = kernel._mix(rows, log_pi, weight, offset, targets, peaks, totals)
        y, share = targets.repeat_interleave(k), r.view(-1) / n

        def backward(config: Config, products: bool) -> Callable[[], object]:
            arguments = (rows, y, peak, total, share, weight, offset, config, False, products, products, True)
            return lambda: kernel._gradients(*arguments)

        for config in FORWARD:
            attempt("forward", config, lambda config=config: kernel._partial_sums(rows, weight, offset, config))
        for config in BACKWARD:
            attempt("dlogits", config, backward(config, products=False))
        if "dlogits" in best:
            for mib in (16, 24, 32, 40, 48, 64, 96):
                config = best["dlogits"][1]._replace(slab_bytes=mib << 20)
                attempt("backward", config, backward(config, products=True))
        for kind, (ms, config) in best.items():
            print(f"  BEST {kind}: {ms:.3f} ms {config}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--budget", type=float, default=110.0, help="seconds after which no configuration is started")
    parser.add_argument("--no-sweep", action="store_true")
    arguments = parser.parse_args()
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "triton", kernel.triton.__version__)
    for name in arguments.sizes:
        leaves, targets, upstream = inputs_of(SIZES[name])
        print(f"{name} N, K, D, V = {SIZES[name]}  [{time.monotonic() - START:.0f} s]")
        errors(leaves, targets, upstream)
        whole(leaves, targets, upstream)
        library(SIZES[name])
    for name in [] if arguments.no_sweep else arguments.sizes:
        leaves, targets, _ = inputs_of(SIZES[name])
        print(f"sweep {name}  [{time.monotonic() - START:.0f} s]")
        left = arguments.sizes.index(name) + 1
        sweep(SIZES[name], leaves, targets, arguments.budget * left / len(arguments.sizes))
    print(f"[{time.monotonic() - START:.0f} s]")


if __name__ == "__main__":
    main()
