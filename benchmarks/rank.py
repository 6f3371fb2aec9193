"""What does the full analysis cost? Rank, spectrum and pairwise KLD of Penn Treebank's test set: 82,430 x 10,000.

    python benchmarks/rank.py                                    the paper's models, random weights, random words
    python benchmarks/rank.py RUN... --data-dir corpora          trained runs on their own test set
    python benchmarks/rank.py --device cuda --driver gesvdj      another cuSOLVER algorithm for singular values

Neither time nor memory depends on the weights. Peak memory is the GPU's, or that of this whole process on a CPU.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch

import highrank
from highrank.analysis import analyze, carrying_state, rank
from highrank.bench.table import Row, Table, origin, to_columns
from highrank.models import LanguageModel, build_model
from highrank.recipes import get_recipe
from highrank.runs.folder import run_corpus

TOKENS, VOCABULARY = 82_430, 10_000


@dataclass(frozen=True, kw_only=True)
class RankRow(Row):
    model: str
    device: str
    driver: str
    tokens: int
    vocabulary: int
    rank: int
    rows_s: float
    svd_s: float
    kld_s: float
    total_s: float
    peak_gib: float


def measure(name: str, model: LanguageModel, ids: torch.Tensor, driver: str, device: torch.device) -> RankRow:
    """Analyse a model in float64 and return the seconds of each stage."""
    columns = origin(device)
    rank.SVD_DRIVER = driver
    stages = []

    def print_stage(stage: str, done: int, total: int | None) -> None:
        if stage not in stages:
            stages.append(stage)
            print(f"  {stage}", flush=True)

    model = model.to(device).double().eval()
    result = analyze(carrying_state(model), ids.to(device), on_stage=print_stage)
    return RankRow(
        model=name, device=device.type, driver=driver if device.type == "cuda" else "gesdd", tokens=len(ids),
        vocabulary=result.columns, rank=result.rank, total_s=round(sum(result.seconds.values()), 2),
        peak_gib=round((result.peak_bytes or 0) / 2**30, 3),
        **{f"{stage}_s": round(seconds, 2) for stage, seconds in result.seconds.items()}, **columns,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--recipes", nargs="+", default=["ptb-softmax", "ptb-mos"], help="For random weights.")
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--driver", default=rank.SVD_DRIVER, choices=["gesvd", "gesvdj", "gesvda"])
    parser.add_argument("--csv", type=Path, default=Path("rank.csv"))
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    table = Table(arguments.csv, RankRow)
    for name in arguments.runs or arguments.recipes:
        print(name, flush=True)
        if arguments.runs:
            model = highrank.load(name).model
            ids = run_corpus(name, arguments.data_dir).splits["test"][: arguments.tokens]
        else:
            torch.manual_seed(0)
            model = build_model(get_recipe(name).model, VOCABULARY)
            ids = torch.randint(VOCABULARY, (arguments.tokens,))
        label = name.name if arguments.runs else f"{name}, random weights"
        table.add(measure(label, model, ids, arguments.driver, device))
        print(to_columns(table.rows[-1]), flush=True)
    print(f"Written to {arguments.csv}")


if __name__ == "__main__":
    main()
