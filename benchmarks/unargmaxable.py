"""How long does the search for unargmaxable tokens take, and does it find exactly those that were planted?

    python benchmarks/unargmaxable.py            10000x280, 50257x768 and 128000x4096
    python benchmarks/unargmaxable.py VxD [...]  other sizes

Random output layers, with 3 tokens planted as means of other rows, and with 300 more near the mean of all rows, as
unused tokens of a vocabulary often are. A first small layer warms up the device and is not recorded.
"""

import time

import torch

from highrank.analysis.argmax import find_unargmaxable
from highrank.runs.provenance import provenance
from measure import make_parser, write_csv

N_UNUSED = 300


def plant_tokens(vocabulary: int, dim: int, n_unused: int, device: torch.device) -> tuple[torch.Tensor, list[int]]:
    """Return an output layer and the tokens that can never win in it."""
    torch.manual_seed(0)
    weight = torch.randn(vocabulary, dim, device=device) * torch.linspace(2, 0.2, dim, device=device)
    weight[[7, 11, 13]] = torch.stack([weight[k::50].mean(0) for k in (1, 2, 3)])
    unused = list(range(100, 100 + n_unused))
    weight[unused] = weight.mean(0) + 0.02 * torch.randn(n_unused, dim, device=device)
    return weight, [7, 11, 13, *unused]


def measure(vocabulary: int, dim: int, n_unused: int, device: torch.device) -> dict[str, object]:
    weight, planted = plant_tokens(vocabulary, dim, n_unused, device)
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    found = find_unargmaxable(weight)
    seconds = time.perf_counter() - start
    gib = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else None
    return {
        "V": vocabulary, "D": dim, "planted": len(planted), "seconds": seconds, "found": len(found.tokens),
        "undecided": len(found.undecided), "exact": found.tokens == planted, "peak_gib": gib,
    }  # fmt: skip


def main() -> None:
    parser = make_parser(__doc__, "unargmaxable.csv")
    parser.add_argument("sizes", nargs="*", metavar="VxD", default=["10000x280", "50257x768", "128000x4096"])
    arguments = parser.parse_args()
    device = arguments.device
    measure(2000, 64, 0, device)
    rows = []
    for size in arguments.sizes:
        vocabulary, dim = map(int, size.split("x"))
        for n_unused in (0, N_UNUSED):
            row = measure(vocabulary, dim, n_unused, device)
            print(row, flush=True)
            rows.append(row | provenance(device))
            write_csv(arguments.csv, rows)


if __name__ == "__main__":
    main()
