"""What does the full analysis cost? Rank, spectrum and pairwise KLD of Penn Treebank's test set: 82,430 x 10,000.

    python benchmarks/rank.py                                    the paper's models, random weights, random words
    python benchmarks/rank.py --device cuda --driver gesvdj      another cuSOLVER algorithm for singular values

Neither time nor memory depends on the weights. Peak memory is the GPU's, or that of this whole process on a CPU.
"""

from typing import Any

import torch

from highrank.analysis import analyze, carrying_state, factors
from highrank.models import LanguageModel, build_model
from highrank.recipes import get_recipe
from highrank.runs.provenance import provenance
from measure import make_parser, write_csv

TOKENS, VOCABULARY = 82_430, 10_000


def measure(name: str, model: LanguageModel, ids: torch.Tensor, driver: str, device: torch.device) -> dict[str, Any]:
    """Analyse a model in float64 and return the seconds of each stage."""
    columns = provenance(device)
    factors.SVD_DRIVER = driver
    model = model.to(device).double().eval()
    result = analyze(carrying_state(model), ids.to(device))
    return dict(
        model=name, device=device.type, driver=driver if device.type == "cuda" else "gesdd", tokens=len(ids),
        vocabulary=VOCABULARY, rank=result.rank, total_s=round(sum(result.seconds.values()), 2),
        peak_gib=round((result.peak_bytes or 0) / 2**30, 3),
        **{f"{stage}_s": round(seconds, 2) for stage, seconds in result.seconds.items()}, **columns,
    )  # fmt: skip


def main() -> None:
    parser = make_parser(__doc__, "rank.csv")
    parser.add_argument("--recipes", nargs="+", default=["ptb-softmax", "ptb-mos"])
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--driver", default=factors.SVD_DRIVER, choices=["gesvd", "gesvdj", "gesvda"])
    arguments = parser.parse_args()
    device = arguments.device
    rows: list[dict[str, Any]] = []
    for name in arguments.recipes:
        print(name, flush=True)
        torch.manual_seed(0)
        model = build_model(get_recipe(name).model, VOCABULARY)
        ids = torch.randint(VOCABULARY, (arguments.tokens,))
        rows.append(measure(f"{name}, random weights", model, ids, arguments.driver, device))
        write_csv(arguments.csv, rows)
        print(rows[-1], flush=True)
    print(f"Written to {arguments.csv}")


if __name__ == "__main__":
    main()
