"""How long does a whole training step take (forward, backward, clipping, update, averaging), on random words?

    python benchmarks/step.py                                         the paper's table 13 of slowdowns; on a CPU, two
    python benchmarks/step.py --recipes ptb-softmax,ptb-mos --plain   names of CASES or of recipes, the softmax first
    python benchmarks/step.py --recipes ptb-mos --set model.n_components=5 train.batch_size=20

Table 13 has the training time of MoS over that of Softmax: "bs" at the same batch size, "best-1" at the settings with
which each is best, both on one GPU. `slowdown` here is the time per word over the softmax's, measured in the same run.

    # differs from the paper: where it had to cut a batch to fit its GPU's memory, we do not. It keeps the models' sizes
    # comparable, but does not print those of MoS-5 and MoS-10; here they are MoS-15's with fewer components.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from highrank.data.catalog import CORPORA
from highrank.data.corpus import Corpus
from highrank.memory import peak_bytes, reset_peak
from highrank.recipes import Recipe, get_recipe, override
from highrank.report.paper import SLOWDOWN
from highrank.runs.corpora import load_data
from highrank.runs.provenance import provenance
from highrank.training.stages import Training
from measure import Row, failures_in_status, make_parser, print_row, time_blocks, write_csv

FAST, PLAIN = "mixed, graphs", "float32, eager"


class Case(NamedTuple):
    """A recipe with settings, and the column of the paper's table that it belongs to."""

    recipe: str
    softmax: str  # the case that it is compared with
    settings: tuple[str, ...] = ()
    column: str = ""


CASES = {
    "ptb-softmax": Case("ptb-softmax", "ptb-softmax", ("train.batch_size=12",), "PTB/bs"),
    "ptb-mos": Case("ptb-mos", "ptb-softmax", (), "PTB/bs"),
    "ptb-moc": Case("ptb-moc", "ptb-softmax"),
    "wt2-softmax": Case("wt2-softmax", "wt2-softmax", ("train.batch_size=15",), "WT2/bs"),
    "wt2-mos": Case("wt2-mos", "wt2-softmax", (), "WT2/bs"),
    "wt2-moc": Case("wt2-moc", "wt2-softmax"),
    "1b-softmax": Case("1b-softmax", "1b-softmax", (), "1B/bs"),
    "1b-mos": Case("1b-mos", "1b-softmax", (), "1B/bs"),
    "ptb-mos-5": Case("ptb-mos", "ptb-softmax", ("model.n_components=5",), "PTB/bs"),
    "ptb-mos-10": Case("ptb-mos", "ptb-softmax", ("model.n_components=10",), "PTB/bs"),
    "wt2-mos-5": Case("wt2-mos", "wt2-softmax", ("model.n_components=5",), "WT2/bs"),
    "wt2-mos-10": Case("wt2-mos", "wt2-softmax", ("model.n_components=10",), "WT2/bs"),
    "ptb-softmax-best": Case("ptb-softmax", "ptb-softmax-best", (), "PTB/best-1"),
    "ptb-mos-best": Case("ptb-mos", "ptb-softmax-best", (), "PTB/best-1"),
    "wt2-softmax-best": Case("wt2-softmax", "wt2-softmax-best", (), "WT2/best-1"),
    "wt2-mos-best": Case("wt2-mos", "wt2-softmax-best", (), "WT2/best-1"),
}
CPU_CASES = ("ptb-softmax", "ptb-mos")


def vocabulary_of(recipe: Recipe) -> int:
    """Return the size of a recipe's vocabulary. The corpora of the catalog need not be installed."""
    known = {name: info.vocabulary for name, info in CORPORA.items()}
    return known.get(recipe.data.corpus) or load_data(recipe, None).vocab_size


def train_on_random_words(
    recipe: Recipe, vocabulary: int, device: torch.device, graphs: bool
) -> tuple[Training, tuple[Tensor, Tensor]]:
    """Return the training of a recipe, averaging if the recipe does, and one window: words and targets, (T, B) each."""
    train = recipe.train
    ids = torch.randint(vocabulary, ((train.bptt + 1) * train.batch_size,))
    corpus = Corpus("random", "word", [""] * vocabulary, {"train": ids}, fingerprint="")
    training = Training(recipe, corpus, device, graphs=graphs)
    if train.averaging != "none":
        training.optimizer.start_averaging()
    words = ids.view(-1, train.batch_size).to(device)
    return training, (words[:-1], words[1:])


def time_updates(training: Training, window: tuple[Tensor, Tensor], lr: float, rounds: int) -> Row:
    """Time updates on one window by the wall clock: five at a time on a GPU."""
    step = training.step
    repeat, warm_up = (5, 4) if training.device.type == "cuda" else (1, 1)
    return time_blocks(lambda: step(window, lr), step.read, rounds, repeat, warm_up)


def measure(recipe: Recipe, vocabulary: int, device: torch.device, graphs: bool, rounds: int) -> Row:
    """Time updates of a recipe, and measure their memory."""
    reset_peak(device)
    training, window = train_on_random_words(recipe, vocabulary, device, graphs)
    times = time_updates(training, window, recipe.train.lr, rounds)
    speed = window[0].numel() / times["median_ms"] * 1e3
    return {**times, "tokens_per_second": speed, "peak_mib": (peak_bytes(device) or 0) / 2**20}


def main() -> None:
    parser = make_parser(__doc__, "step.csv", rounds=True)
    parser.add_argument("--recipes", metavar="NAMES", help="with commas between")
    parser.add_argument("--plain", action="store_true", help="float32 without CUDA graphs, as on a CPU")
    parser.add_argument("--set", nargs="+", metavar="KEY=VALUE", default=[])
    args = parser.parse_args()
    cuda = args.device.type == "cuda"
    how, precision = (FAST, "mixed") if cuda and not args.plain else (PLAIN, "float32")
    origin = provenance(args.device)
    rows: list[Row] = []
    speeds: dict[str, float] = {}
    for name in (args.recipes or ",".join(CASES if cuda else CPU_CASES)).split(","):
        case = CASES.get(name) or Case(name, name.split("-")[0] + "-softmax")
        recipe = override(get_recipe(case.recipe), [*case.settings, f"train.precision={precision}", *args.set])
        train = recipe.train
        vocabulary = vocabulary_of(recipe)
        k = recipe.model.n_components
        row: Row = {
            "recipe": name, "settings": " ".join([*case.settings, *args.set]), "how": how, "batch": train.batch_size,
            "bptt": train.bptt, "K": k, "vocabulary": vocabulary, "device": args.device.type, "softmax": case.softmax,
            "paper_column": case.column, "paper_slowdown": SLOWDOWN.get(k, {}).get(case.column),
        }  # fmt: skip
        with failures_in_status(row):
            row |= measure(recipe, vocabulary, args.device, how == FAST, args.rounds)
            speeds[name] = row["tokens_per_second"]
            row["slowdown"] = speeds[case.softmax] / speeds[name] if case.softmax in speeds else None
        rows.append(row)
        write_csv(args.csv, [{**row, **origin} for row in rows])
        print_row(row, "recipe", "how", "status", "median_ms", "peak_mib", "slowdown", "paper_slowdown")
    print(f"Written to {args.csv}")


if __name__ == "__main__":
    main()
