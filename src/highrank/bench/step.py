"""Time of whole training updates (forward, backward, clipping, update, averaging) on random words.

The paper's appendix on computational time gives the training time of MoS over that of Softmax: "bs" at the same batch
size, "best-1" at the settings with which each is best, both on one GPU. `slowdown` here is the time per word over the
softmax's, measured in the same run.

    # differs from the paper: where it had to cut a batch to fit its GPU's memory, we do not. It keeps the models' sizes
    # comparable, but does not print those of MoS-5 and MoS-10; here they are MoS-15's with fewer components.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch

from highrank.bench.measure import time_blocks
from highrank.bench.table import Benchmark, TimedRow, ratio
from highrank.data.catalog import CORPORA
from highrank.data.corpus import Corpus
from highrank.errors import UserError, nearest
from highrank.memory import peak_bytes, reset_peak
from highrank.recipes import RECIPES, Recipe, override
from highrank.runs.corpora import load_data
from highrank.runs.provenance import provenance
from highrank.training.stages import Training

FAST, PLAIN = "mixed, graphs", "float32, eager"


@dataclass(frozen=True)
class Case:
    """A recipe with settings, and the cell of the paper's table that it corresponds to."""

    name: str
    recipe: str
    softmax: str  # the case that it is compared with
    settings: tuple[str, ...] = ()
    column: str = ""  # of the paper's table
    paper: float | None = None


CASES = {
    case.name: case
    for case in (
        Case("ptb-softmax", "ptb-softmax", "ptb-softmax", ("train.batch_size=12",), "PTB/bs", 1.0),
        Case("ptb-mos", "ptb-mos", "ptb-softmax", (), "PTB/bs", 1.9),
        Case("ptb-moc", "ptb-moc", "ptb-softmax"),
        Case("wt2-softmax", "wt2-softmax", "wt2-softmax", ("train.batch_size=15",), "WT2/bs", 1.0),
        Case("wt2-mos", "wt2-mos", "wt2-softmax", (), "WT2/bs", 2.5),
        Case("wt2-moc", "wt2-moc", "wt2-softmax"),
        Case("1b-softmax", "1b-softmax", "1b-softmax", (), "1B/bs", 1.0),
        Case("1b-mos", "1b-mos", "1b-softmax", (), "1B/bs", 3.8),
        Case("ptb-mos-5", "ptb-mos", "ptb-softmax", ("model.n_components=5",), "PTB/bs", 1.2),
        Case("ptb-mos-10", "ptb-mos", "ptb-softmax", ("model.n_components=10",), "PTB/bs", 1.6),
        Case("wt2-mos-5", "wt2-mos", "wt2-softmax", ("model.n_components=5",), "WT2/bs", 1.3),
        Case("wt2-mos-10", "wt2-mos", "wt2-softmax", ("model.n_components=10",), "WT2/bs", 1.9),
        Case("ptb-softmax-best", "ptb-softmax", "ptb-softmax-best", (), "PTB/best-1", 1.0),
        Case("ptb-mos-best", "ptb-mos", "ptb-softmax-best", (), "PTB/best-1", 2.8),
        Case("wt2-softmax-best", "wt2-softmax", "wt2-softmax-best", (), "WT2/best-1", 1.0),
        Case("wt2-mos-best", "wt2-mos", "wt2-softmax-best", (), "WT2/best-1", 6.4),
    )
}
CPU_CASES = ("ptb-softmax", "ptb-mos")


@dataclass(frozen=True, kw_only=True)
class StepRow(TimedRow):
    """One case, run in one way."""

    shown: ClassVar = ("recipe", "how", "batch", "K", "median_ms", "q25_ms", "q75_ms", "tokens_per_second", "peak_mib",
                       "slowdown", "paper_slowdown", "status")  # fmt: skip

    recipe: str
    settings: str
    how: str  # FAST or PLAIN
    batch: int
    bptt: int
    K: int
    vocabulary: int
    tokens_per_second: float | None = None
    peak_mib: float | None = None
    softmax: str
    slowdown: float | None = None
    paper_column: str
    paper_slowdown: float | None = None


def step_benchmark(
    names: str | None, plain: bool, settings: list[str], device: torch.device, rounds: int
) -> Benchmark[StepRow]:
    """List the measurements of `CASES` and recipes, named with commas between; `settings` override their values.

    Steps run in mixed precision with CUDA graphs; in float32 without them on a CPU, or if `plain`.
    """
    cuda = device.type == "cuda"
    how, precision = (FAST, "mixed") if cuda and not plain else (PLAIN, "float32")
    columns = {**provenance(device), "device": device.type, "how": how}
    vocabularies = {name: info.vocabulary for name, info in CORPORA.items()}
    jobs = []
    for name in (names or ",".join(CASES if cuda else CPU_CASES)).replace(" ", "").split(","):
        if name not in CASES and name not in RECIPES:
            raise UserError(f'there is no recipe called "{name}"{nearest(name, {**CASES, **RECIPES})}')
        case = CASES.get(name) or Case(name, name, name.split("-")[0] + "-softmax")
        recipe = override(RECIPES[case.recipe], [*case.settings, f"train.precision={precision}", *settings])
        # Corpora of the catalog need not be installed.
        vocabulary = vocabularies.get(recipe.data.corpus) or load_data(recipe, None).vocab_size
        row = StepRow(
            recipe=case.name, settings=" ".join([*case.settings, *settings]), batch=recipe.train.batch_size,
            bptt=recipe.train.bptt, K=recipe.model.n_components, vocabulary=vocabulary,
            softmax=case.softmax, paper_column=case.column, paper_slowdown=case.paper, **columns,
        )  # fmt: skip
        jobs.append((row, partial(_measure, recipe, device, rounds)))
    return Benchmark("step", jobs, fill_slowdowns)


def _measure(recipe: Recipe, device: torch.device, rounds: int, row: StepRow) -> StepRow:
    """Time updates of a recipe on random words."""
    train = recipe.train
    reset_peak(device)
    ids = torch.randint(row.vocabulary, ((train.bptt + 1) * train.batch_size,))
    corpus = Corpus("random", "word", [""] * row.vocabulary, {"train": ids}, fingerprint="")
    training = Training(recipe, corpus, device, graphs=row.how == FAST)
    if train.averaging != "none":
        training.optimizer.start_averaging()
    step = training.step
    words = ids.view(-1, train.batch_size).to(device)
    repeat, warm_up = (5, 4) if device.type == "cuda" else (1, 1)
    times = time_blocks(lambda: step((words[:-1], words[1:]), train.lr), step.read, rounds, repeat, warm_up)
    speed = train.batch_size * train.bptt / times["median_ms"] * 1e3
    return replace(row, **times, tokens_per_second=speed, peak_mib=(peak_bytes(device) or 0) / 2**20)


def fill_slowdowns(rows: list[StepRow]) -> list[StepRow]:
    """Fill in every row's time per word over that of its softmax."""
    speeds = {row.recipe: row.tokens_per_second for row in rows}
    return [replace(row, slowdown=ratio(speeds.get(row.softmax), row.tokens_per_second)) for row in rows]
