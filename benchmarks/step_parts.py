"""Where does the time of a training step go? Times its parts one by one, each in a CUDA graph on a GPU.

    python benchmarks/step_parts.py                                        1b-softmax and 1b-mos at full size
    python benchmarks/step_parts.py --recipes ptb-mos --vocabulary 10000

The parts are the loss (the head, forward and backward), the LSTM layers (forward and backward), the gradient of the
input embedding, and the update (norm of the gradient, clipping, SGD and averaging). "embedding, dense" is what autograd
does with a tied embedding: it zeroes a (V, D) tensor, adds the rows of the batch into it, and adds the result to the
gradient from the head. "embedding, rows" adds the rows to that gradient directly. `mib` is the memory that a part must
move at least.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from highrank.recipes import RECIPES, override
from highrank.runs.provenance import provenance
from highrank.training.precision import autocast, training_slab_bytes
from measure import make_parser, release_memory, time_call, write_csv
from step import time_updates, train_on_random_words


def measure(name: str, settings: list[str], vocabulary: int, device: torch.device, rounds: int) -> list[dict]:
    """Return one row per part of a recipe's step, and one for the whole step."""
    recipe = override(RECIPES[name], settings)
    train = recipe.train
    training, (words, targets) = train_on_random_words(recipe, vocabulary, device, graphs=True)
    task = training.task
    model = task.model
    optimizer = training.optimizer
    step = time_updates(training, (words, targets), 0.0, rounds)
    release_memory()

    weight = model.backbone.embedding
    lr = torch.zeros((), device=device)
    always = torch.ones((), dtype=torch.bool, device=device)
    state = model.initial_state(train.batch_size)
    with autocast(device, task.precision.backbone):
        g = model.backbone(words, state).g.detach().requires_grad_()
    g_grad = torch.randn_like(g)
    x = F.embedding(words, weight).detach().requires_grad_()
    rows = torch.randn_like(x)
    head_grad = torch.zeros_like(weight)

    def loss() -> None:
        optimizer.zero_grad()
        with autocast(device, task.precision.head):
            model.head.nll(g, targets, slab_bytes=training_slab_bytes(model.head, device)).mean().backward()

    def layers() -> None:
        optimizer.zero_grad()
        y = x
        with autocast(device, task.precision.backbone):
            for layer, layer_state in zip(model.backbone.layers, state, strict=True):
                y, _ = layer(y, layer_state)
        y.backward(g_grad)

    def dense() -> None:
        weight.grad = None
        F.embedding(words, weight).backward(rows)
        head_grad.add_(weight.grad)

    def by_rows() -> None:
        F.embedding(words, weight)
        head_grad.index_add_(0, words.reshape(-1), rows.flatten(0, 1))

    def update() -> None:
        norm = torch.nn.utils.get_total_norm([p.grad for p in optimizer.parameters])
        optimizer.step(lr, (train.clip / norm).clamp(max=1.0), always)

    for p in optimizer.parameters:
        p.grad = torch.zeros_like(p)
    everything = sum(p.numel() for p in optimizer.parameters) * 4
    embedding = weight.numel() * 4
    parts: dict[str, tuple[Callable[[], None], int | None]] = {
        "update": (update, 4 * everything),  # read the gradient twice and the weights once, write the weights
        "embedding, dense": (dense, 4 * embedding),  # write zeros, read both gradients, write their sum
        "embedding, rows": (by_rows, 3 * rows.numel() * 4),
        "layers": (layers, None),
        "loss": (loss, None),
    }
    result = [{"recipe": name, "part": "step", "ms": step["median_ms"], "mib": None}]
    for part, (call, moved) in parts.items():
        ms = time_call(call, device, rounds, graph=device.type == "cuda")["best_ms"]
        result.append({"recipe": name, "part": part, "ms": ms, "mib": moved and moved / 2**20})
        print(result[-1], flush=True)
    return [{**row, "share": row["ms"] / step["median_ms"]} for row in result]


def main() -> None:
    parser = make_parser(__doc__, "step_parts.csv", rounds=True)
    parser.add_argument("--recipes", nargs="+", default=["1b-softmax", "1b-mos"])
    parser.add_argument("--set", nargs="*", metavar="KEY=VALUE", default=[])
    parser.add_argument("--vocabulary", type=int, default=100_000)
    args = parser.parse_args()
    device = args.device
    rows = []
    for name in args.recipes:
        rows += measure(name, args.set, args.vocabulary, device, args.rounds)
        write_csv(args.csv, [{**row, **provenance(device)} for row in rows])


if __name__ == "__main__":
    main()
