"""What does the full analysis cost? Rank, spectrum and pairwise KLD of Penn Treebank's test set: 82,430 x 10,000.

    python benchmarks/rank.py                                    the paper's models, random weights, random words
    python benchmarks/rank.py RUN... --data-dir corpora          trained runs on their own test set
    python benchmarks/rank.py --device cuda --driver gesvdj      another of cuSOLVER's ways to singular values

Neither time nor memory depends on the weights. Peak memory is the GPU's, or this whole process's on a CPU.
"""

import argparse
from pathlib import Path

import torch

import highrank
from highrank.analysis import analyze, carrying_state, rank
from highrank.bench.record import Record, origin
from highrank.models import build_model
from highrank.recipes import get_recipe
from highrank.runs.folder import run_corpus

TOKENS, VOCABULARY = 82_430, 10_000


def measure(name: str, model: torch.nn.Module, ids: torch.Tensor, driver: str, device: torch.device) -> dict:
    source = origin(device)
    rank.SVD_DRIVER = driver
    seen = [0.0]

    def tell(stage: str, done: int, total: int | None) -> None:
        share = done / total if total else 0.0
        if not total or share >= seen[0] + 0.1:
            seen[0] = share
            print(f"  {stage} {share:.0%}" if total else f"  {stage}", flush=True)

    model = model.to(device).double().eval()
    result = analyze(carrying_state(model), ids.to(device), on_stage=tell)
    return {"model": name, "device": device.type, "driver": driver if device.type == "cuda" else "gesdd",
            "tokens": result.tokens, "vocabulary": result.vocabulary, "rank": result.rank,
            **{f"{stage}_s": round(seconds, 2) for stage, seconds in result.seconds.items()},
            "total_s": round(sum(result.seconds.values()), 2), "peak_gib": round((result.peak_bytes or 0) / 2**30, 3),
            **source}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--recipe", action="append", help="for random weights; default: ptb-softmax, ptb-mos")
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--driver", default=rank.SVD_DRIVER, choices=["gesvd", "gesvdj", "gesvda"])
    parser.add_argument("--csv", type=Path, default=Path("rank.csv"))
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    record = Record(arguments.csv)
    for run in arguments.runs:
        ids = run_corpus(run, arguments.data_dir).splits["test"][: arguments.tokens]
        record.add(measure(run.name, highrank.load(run).model, ids, arguments.driver, device))
        print(record.rows[-1], flush=True)
    for recipe in [] if arguments.runs else arguments.recipe or ["ptb-softmax", "ptb-mos"]:
        torch.manual_seed(0)
        model = build_model(get_recipe(recipe).model, VOCABULARY)
        ids = torch.randint(VOCABULARY, (arguments.tokens,))
        record.add(measure(f"{recipe}, random weights", model, ids, arguments.driver, device))
        print(record.rows[-1], flush=True)
    print(f"Written to {arguments.csv}")


if __name__ == "__main__":
    main()
