"""Throw-away: which configuration of the Triton mos_nll is the fastest on this GPU, and is it right?

    PYTHONPATH=src python benchmarks/probe_kernel.py [--sizes ptb wt2 1b] [--budget 55] [--no-sweep] [--library]

First, for every size, the defaults: errors against float64, time in a CUDA graph, extra peak memory. Then, for every
size, the forward and dlogits kernels alone and the whole backward pass for a few configurations and slab sizes (graph
replays: no launch cost).
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
    Config(128, 256, 64, 8, 3, True, True, 1),
    Config(128, 256, 64, 8, 4, True, True, 1),
]
#                                                halves
BACKWARD = [
    Config(128, 128, 64, 4, 3, True, True, 2, True),
    Config(128, 128, 64, 4, 2, True, True, 2, False),
    Config(128, 256, 64, 8, 3, True, True, 1, False),
    Config(128, 256, 64, 8, 3, True, True, 1, True),
    Config(128, 256, 64, 8, 4, True, True, 1, True),
    Config(128, 256, 64, 8, 3, True, False, 1, False),
]
SCRATCH = {"ptb": (44, 52, 60, 64), "wt2": (52, 56, 60, 64, 80), "1b": (96, 108, 120, 128, 160)}  # MiB


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
    upstream = torch.full_like(upstream, 1 / len(upstream))  # a mean

    def both(leaves: list[Tensor] = leaves, skip: bool = True) -> None:
        torch.autograd.grad(kernel.mos_nll(*leaves, targets, skip=skip), leaves, upstream)

    def forward() -> None:
        with torch.no_grad():
            kernel.mos_nll(*leaves, targets)

    print(f"  in a graph: forward {median_ms(graphed(forward)):.3f}", end="")
    for skip in (True, False):
        print(f"  both, skip={skip} {median_ms(graphed(lambda skip=skip: both(skip=skip))):.3f}", end="")
    print(f" ms   eager: {median_ms(both):.3f} ms", end="")
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    both()
    extra = torch.cuda.max_memory_allocated() - before - sum(x.numel() * x.element_size() for x in leaves)
    print(f"   extra peak memory {extra / 2**20:.1f} MiB", flush=True)
    mostly = leaves[1].detach().clone()
    mostly[:, 3:] = -60.0  # three components of K left, as in a trained model
    sparse = [leaves[0], mostly.requires_grad_(), *leaves[2:]]
    times = [median_ms(lambda skip=skip: both(sparse, skip)) for skip in (True, False)]
    print("  three components responsible, eager: skip=True {:.3f}  skip=False {:.3f} ms".format(*times), flush=True)


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


def sweep(name: str, leaves: list[Tensor], targets: Tensor, budget: float) -> None:
    n, k, d, v = SIZES[name]
    with torch.no_grad():
        h, log_pi, weight, bias = leaves
        rows = kernel._rows(h.reshape(n * k, d), torch.bfloat16, ones=True)
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
            print(f"  {kind:8s} {tuple(config)[:9]} scratch {config.scratch_bytes >> 20:3d} MiB: {ms:.3f} ms", end="")
            print(f"  ({flops / ms / 1e9:.0f} TFLOP/s)" if kind == "forward" else "", flush=True)

        how = (torch.bfloat16, rows.device, v, d)
        peaks, totals = kernel._partial_sums(rows, weight, offset, kernel.forward_config(*how))
        _, r, *state = kernel._mix(rows, log_pi, weight, offset, targets, peaks, totals)
        y, share = targets.repeat_interleave(k), r.view(-1) / n

        def backward(config: Config, products: bool) -> Callable[[], object]:
            arguments = (rows, y, *state, share, weight, offset, config, False, products, products, products)
            return lambda: kernel._gradients(*arguments)

        default = kernel.backward_config(*how)
        for config in BACKWARD:  # all with the slab of the default, though without dh there would be room for more
            held = n * k * kernel._width(d, torch.bfloat16) * 4
            config = config._replace(scratch_bytes=default.scratch_bytes - held)
            attempt("dlogits", config, backward(config, products=False))
        for mib in SCRATCH[name] if "dlogits" in best else ():
            config = best["dlogits"][1]._replace(scratch_bytes=mib << 20)
            attempt("backward", config, backward(config, products=True))
        for config in FORWARD:
            config = config._replace(scratch_bytes=default.scratch_bytes)
            attempt("forward", config, lambda config=config: kernel._partial_sums(rows, weight, offset, config))
        for kind, (ms, config) in best.items():
            print(f"  BEST {kind}: {ms:.3f} ms {config}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--budget", type=float, default=55.0, help="seconds after which no configuration is started")
    parser.add_argument("--no-sweep", action="store_true")
    parser.add_argument("--library", action="store_true", help="also time the library's products alone")
    arguments = parser.parse_args()
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "triton", kernel.triton.__version__)
    for name in arguments.sizes:
        leaves, targets, upstream = inputs_of(SIZES[name])
        print(f"{name} N, K, D, V = {SIZES[name]}  [{time.monotonic() - START:.0f} s]")
        errors(leaves, targets, upstream)
        whole(leaves, targets, upstream)
        if arguments.library:
            library(SIZES[name])
    for name in [] if arguments.no_sweep else arguments.sizes:
        leaves, targets, _ = inputs_of(SIZES[name])
        print(f"sweep {name}  [{time.monotonic() - START:.0f} s]")
        left = len(arguments.sizes) - arguments.sizes.index(name)
        now = time.monotonic() - START
        sweep(name, leaves, targets, now + (arguments.budget - now) / left)
    print(f"[{time.monotonic() - START:.0f} s]")


if __name__ == "__main__":
    main()
