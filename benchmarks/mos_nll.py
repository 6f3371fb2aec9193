"""How fast is the loss of a mixture of softmaxes, forward and backward, and how much memory does it take?

    python benchmarks/mos_nll.py                            the paper's sizes; Penn Treebank's alone on a CPU
    python benchmarks/mos_nll.py --sizes ptb,64x4x128x5000 --dtype float32      names, or N x K x D x V
    python benchmarks/mos_nll.py --scaling                  over K, V and N, beside one softmax
    python benchmarks/mos_nll.py --llm                      8 sizes of large language models: 90 s on an H200

Every implementation in peers.py is compared with float64 before it is timed. One that is wrong, not installed or too
large for the free memory has the reason in its `status`. `--scaling` and `--llm` compare a mixture with one softmax at
the same N, D and V: the same op at K = 1, and torch's `F.cross_entropy` on all logits. mos_nll_figure.py draws the
CSV file.
"""

import importlib.metadata
import re
from functools import partial

import torch

import peers
from highrank.memory import require_bytes
from highrank.runs.provenance import provenance
from measure import (
    Row,
    failures_in_status,
    fill_times_ours,
    make_parser,
    measure_extra_mib,
    print_row,
    time_call,
    write_csv,
)
from peers import Implementation, Shape

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
CPU_SWEEPS = {**SWEEPS, "N": (16, 64, 256, 1_024)}
LLM_SIZES = tuple(f"4096x{k}x{d}x{v}" for v in (128_000, 256_000) for d in (2048, 4096) for k in (2, 4))
CPU_LLM_SIZES = ("64x2x1024x32000", "64x4x1024x32000")
LLM_PEERS = ("highrank, triton", peers.LARGE, "cut-cross-entropy, exact", "Liger")
MAX_ERROR = 0.05  # relative; bfloat16 alone makes at most 0.005, a wrong gradient about 1
BYTES_PER_LOGIT = 16  # at most: logits, their exponentials and gradients, where an implementation builds them all

Case = tuple[str, Shape, Implementation]  # the name of a size, the size, what is measured


def parse_sizes(text: str) -> dict[str, Shape]:
    """Parse names of `SIZES` and sizes NxKxDxV, separated by commas."""
    sizes = {}
    for name in map(str.strip, text.split(",")):
        if name not in SIZES and not re.fullmatch(r"[1-9]\d*(x[1-9]\d*){3}", name):
            raise ValueError(f"{name} is not a size")
        sizes[name] = SIZES.get(name) or tuple(map(int, name.split("x")))
    return sizes


def paper_cases(sizes: str | None, cuda: bool) -> list[Case]:
    """Return all implementations at some sizes."""
    shapes = parse_sizes(sizes or (",".join(SIZES) if cuda else "ptb"))
    usable = [one for one in peers.IMPLEMENTATIONS if cuda or not one.gpu_only]
    return [(name, shape, one) for name, shape in shapes.items() for one in usable]


def scaling_cases(_: str | None, cuda: bool) -> list[Case]:
    """Return a mixture and one softmax while K, V or N takes each of its values."""
    cases = []
    for name, values in (SWEEPS if cuda else CPU_SWEEPS).items():
        for value in values:
            base = {"N": 840 if cuda else 64, "K": 15, "V": 10_000, name: value}
            for one in (peers.MIXTURE, peers.ONE_SOFTMAX, peers.TORCH_SOFTMAX):
                k = base["K"] if one is peers.MIXTURE else 1
                cases.append((f"{name}={value}", (base["N"], k, 280, base["V"]), one))
    return cases


def llm_cases(sizes: str | None, cuda: bool) -> list[Case]:
    """Return the softmax of every size, then mixtures, ours first: a time limit may stop the slow peers."""
    shapes = list(parse_sizes(sizes or ",".join(LLM_SIZES if cuda else CPU_LLM_SIZES)).values())
    mixtures = [one for one in peers.IMPLEMENTATIONS if one.name in LLM_PEERS] if cuda else [peers.MIXTURE]
    softmaxes = dict.fromkeys((n, 1, d, v) for n, _, d, v in shapes)
    pairs = [(shape, one) for shape in softmaxes for one in (peers.TORCH_SOFTMAX, peers.ONE_SOFTMAX)]
    pairs += [(shape, one) for one in mixtures for shape in shapes]
    return [("x".join(map(str, shape)), shape, one) for shape, one in pairs]


def measure(one: Implementation, shape: Shape, device: torch.device, dtype: str, rounds: int, graph: bool) -> Row:
    """Time an implementation and measure its memory, if its loss and gradients are correct and it fits."""
    n, k, _, v = shape
    if one.builds_logits:
        require_bytes(n * k * v * BYTES_PER_LOGIT, device, one.name, "choose a smaller size")
    loss = one.load()
    error = peers.relative_error(loss, shape, device, getattr(torch, dtype))
    if not error <= MAX_ERROR:  # also true for NaN
        raise ArithmeticError(f"its loss or gradients have a relative error of {error:.2g}")
    call = partial(peers.forward_backward, loss, peers.make_inputs(shape, device, getattr(torch, dtype)))
    times = time_call(call, device, rounds, graph)
    version = importlib.metadata.version(one.package) if one.package else None
    return {**times, "extra_mib": measure_extra_mib(call, device), "error": error, "version": version}


def main() -> None:
    parser = make_parser(__doc__, "mos_nll.csv", rounds=True)
    parser.add_argument("--sizes", help=f"of {', '.join(SIZES)}, or NxKxDxV, with commas between")
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--llm", action="store_true")
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], help="bfloat16 on a GPU, else float32")
    args = parser.parse_args()
    cuda = args.device.type == "cuda"
    dtype = args.dtype or ("bfloat16" if cuda else "float32")
    list_cases = scaling_cases if args.scaling else llm_cases if args.llm else paper_cases
    origin = provenance(args.device)
    rows: list[Row] = []
    for size, shape, one in list_cases(args.sizes, cuda):
        row = {"size": size, "implementation": one.name, **dict(zip("NKDV", shape, strict=True)), "dtype": dtype}
        row["device"] = args.device.type
        with failures_in_status(row):
            row |= measure(one, shape, args.device, dtype, args.rounds, one.graph and not args.llm)
        rows.append(row)
        fill_times_ours(rows)
        write_csv(args.csv, [{**row, **origin} for row in rows])
        print_row(row, "size", "implementation", "status", "median_ms", "graph_ms", "extra_mib", "times_ours")
    print(f"Written to {args.csv}")


if __name__ == "__main__":
    main()
