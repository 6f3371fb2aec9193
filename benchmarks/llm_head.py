"""What does a mixture cost on a large language model, beside its softmax and other projects' losses?

python benchmarks/llm_head.py OUT.csv                  8 sizes with 4096 tokens; about 90 s on an H200
python benchmarks/llm_head.py OUT.csv 64x2x32x1000     other sizes, N x K x D x V
"""

import sys
from pathlib import Path

import torch

from highrank.bench.mos_nll import LLM_SIZES, llm_benchmark, parse_sizes
from highrank.bench.table import run_benchmark

if __name__ == "__main__":
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    sizes = tuple(parse_sizes(sys.argv[2]).values()) if sys.argv[2:] else LLM_SIZES
    benchmark = llm_benchmark("auto", device, rounds=1, shapes=sizes)
    print(f"{len(benchmark.jobs)} measurements")
    for row in run_benchmark(benchmark, Path(sys.argv[1]), lambda done, total: print(f"{done}/{total}", flush=True)):
        shown = {name: getattr(row, name) for name in row.shown}
        print(*(f"{value:.4g}" if isinstance(value, float) else value for value in shown.values()), sep="\t")
