"""How much time does the sampled backward pass (`train.sample_below`) save, in the loss and in whole training steps?

    python benchmarks/sampled_speed.py                                         the paper's sizes on a GPU
    python benchmarks/sampled_speed.py --sizes 64x4x16x100 --recipes pydoc-mos   on a CPU

The time depends on how many rows are kept, so on the responsibilities. Those of a new model are even, and none of them
would be dropped. Here the logits of the prior are normal with a standard deviation of 2.6, and the components predict
much the same, so that r is nearly pi: of 15 rows, 3.1 have a responsibility above 1/16, 5.7 above 1/64 and 8.6 above
1/256, and the largest is 0.57. In a trained ptb-mos it is 3.0, 5.7, 8.5 and 0.59. Steps have a learning rate of 0,
which keeps it so. `kept` is the share of rows that a sample keeps on average; eps is empty for the exact gradients.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

import peers
from highrank.ops.mos_nll import mos_nll
from highrank.recipes import get_recipe, override
from highrank.runs.provenance import provenance
from highrank.training.precision import TRAINING_SLAB_BYTES
from highrank.training.stages import Training
from measure import make_parser, release_memory, time_call, write_csv
from mos_nll import parse_sizes
from step import time_updates, train_on_random_words, vocabulary_of

PRIOR_SPREAD = 2.6  # standard deviation of the prior's logits
EPS = (None, 1 / 64, 1 / 32, 1 / 8, 1 / 4, 1.0)


def main() -> None:
    parser = make_parser(__doc__, "sampled_speed.csv", rounds=True)
    parser.add_argument("--sizes", default="ptb,wt2,1b", help="sizes of the loss: names or NxKxDxV")
    parser.add_argument("--recipes", default="ptb-mos,wt2-mos,1b-softmax,1b-mos", help="recipes whose steps are timed")
    arguments = parser.parse_args()
    device = arguments.device
    rows: list[dict[str, Any]] = []

    def add(what: str, name: str, eps: float | None, kept: float, times: dict[str, Any]) -> None:
        row = dict(
            what=what, name=name, eps=eps, kept=kept, median_ms=times["median_ms"], q25_ms=times["q25_ms"],
            q75_ms=times["q75_ms"], graph_ms=times.get("graph_ms"), **provenance(device),
        )  # fmt: skip
        rows.append(row)
        write_csv(arguments.csv, rows)
        graph = f", {row['graph_ms']:.3f} in a graph" if row["graph_ms"] else ""
        print(f"{what} {name}, eps {eps}: keeps {kept:.1%}, {row['median_ms']:.3f} ms{graph}", flush=True)

    for name, shape in parse_sizes(arguments.sizes).items():
        for eps in EPS:
            release_memory()
            add("loss", name, eps, *time_loss(shape, eps, device, arguments.rounds))
    for name in arguments.recipes.split(","):
        for eps in EPS if "-mos" in name else (None,):
            release_memory()
            add("step", name, eps, *time_step(name, eps, device, arguments.rounds))
    print(f"Written to {arguments.csv}")


def time_loss(shape: peers.Shape, eps: float | None, device: torch.device, rounds: int) -> tuple[float, dict[str, Any]]:
    """Return the share of kept rows and the times of the loss, forward and backward."""
    cuda = device.type == "cuda"
    h, log_pi, w, b, y = peers.make_inputs(shape, device, torch.bfloat16 if cuda else torch.float32)
    log_pi = (PRIOR_SPREAD * torch.randn(shape[:2], device=device)).log_softmax(-1).requires_grad_()
    w = (w.detach() / 10).requires_grad_()  # logits with a deviation of less than 0.2
    loss = partial(mos_nll, sample_below=eps, slab_bytes=TRAINING_SLAB_BYTES if cuda else None)
    inputs = (h, log_pi, w, b, y)
    times = time_call(partial(peers.forward_backward, loss, inputs), device, rounds, graph=True)
    return kept_share(peers.responsibilities(*inputs), eps), times


def time_step(name: str, eps: float | None, device: torch.device, rounds: int) -> tuple[float, dict[str, Any]]:
    """Return the share of kept rows and the times of a training step of a recipe, as step.py does."""
    cuda = device.type == "cuda"
    precision = "mixed" if cuda else "float32"
    recipe = override(get_recipe(name), [f"train.precision={precision}", f"train.sample_below={eps}"])
    training, window = train_on_random_words(recipe, vocabulary_of(recipe), device, graphs=cuda)
    kept = spread_prior(training, *window, eps) if "-mos" in name else 1.0
    return kept, time_updates(training, window, 0.0, rounds)


def spread_prior(training: Training, words: Tensor, targets: Tensor, eps: float | None) -> float:
    """Scale the prior's weights so that its logits have the wanted deviation; return the share of kept rows."""
    task: Any = training.task
    head = task.model.head
    with torch.no_grad():
        hidden = task.score(words, targets, task.model.initial_state(words.shape[1]))[1]
        logits = head.prior(hidden.g.to(head.prior.weight.dtype))
        head.prior.weight.mul_(PRIOR_SPREAD / logits.std(dim=-1).square().mean().sqrt())
        log_pi, h = head.log_components(hidden.g)
    r = peers.responsibilities(h.flatten(0, 1), log_pi.flatten(0, 1), head.weight, head.bias, targets.flatten())
    return kept_share(r, eps)


def kept_share(r: Tensor, eps: float | None) -> float:
    """Return the share of rows that a sample keeps on average."""
    return 1.0 if eps is None else float((r / eps).clamp(max=1).mean())


if __name__ == "__main__":
    main()
