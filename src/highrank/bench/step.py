"""Time of whole training updates (forward, backward, clipping, update, averaging) on random words.

The paper's appendix on computational time gives the training time of MoS over that of Softmax: "bs" at the same batch
size, "best-1" at the settings with which each is best, both on one GPU. `slowdown` here is the time per word over the
softmax's, measured in the same run.

    # differs from the paper: where it had to cut a batch to fit its GPU's memory, we do not. It keeps the models' sizes
    # comparable, but does not print those of MoS-5 and MoS-10; here they are MoS-15's with fewer components.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Literal

import torch

from highrank.bench.benchmark import Benchmark, Job
from highrank.bench.table import TimedRow, origin
from highrank.bench.timing import time_blocks
from highrank.data.catalog import CORPORA
from highrank.data.corpus import load_corpus
from highrank.errors import UserError, nearest
from highrank.models.language_model import build_model
from highrank.recipes import RECIPES, DataSpec, ModelSpec, Recipe, TrainSpec, override
from highrank.training.graph import GraphedStep
from highrank.training.nt_asgd import NTASGD
from highrank.training.step import Step
from highrank.training.two_tailed import TwoTailed

How = Literal["auto", "fast", "plain", "both"]
FAST, PLAIN = "mixed, graphs", "float32, eager"
BILLION_VOCABULARY = 100_000  # words of the paper's vocabulary for the 1B corpus

# The paper's models for the 1B corpus (its appendix B.2), tied: 113M and 119M parameters. It gives no dropout, and no
# details of regularisation or averaging. These are not recipes: the corpus is not in the catalog.
BILLION_TRAIN = TrainSpec(lr=20.0, batch_size=60, seed=1, bptt=35, alpha=0.0, beta=0.0, weight_decay=0.0)
BILLION_MOS = ModelSpec("mos", 900, (1024, 1024), n_components=7)
BILLION_SOFTMAX = ModelSpec("softmax", 1024, (1024, 1024))
BENCH_ONLY = {
    "1b-mos": Recipe("1b-mos", "1B sizes, bench only", DataSpec("1b"), BILLION_MOS, BILLION_TRAIN),
    "1b-softmax": Recipe("1b-softmax", "1B sizes, bench only", DataSpec("1b"), BILLION_SOFTMAX, BILLION_TRAIN),
}


@dataclass(frozen=True)
class Case:
    """A recipe with settings, and the cell of the paper's table that it corresponds to."""

    name: str
    recipe: str
    settings: tuple[str, ...] = ()
    softmax: str = ""  # the case that it is compared with
    column: str = ""  # of the paper's table
    paper: float | None = None
    plain: bool = False  # whether "auto" also times it in float32 without graphs
    averaging: bool = True


CASES = {
    case.name: case
    for case in (
        Case("ptb-softmax", "ptb-softmax", ("train.batch_size=12",), "ptb-softmax", "PTB/bs", 1.0, plain=True),
        Case("ptb-mos", "ptb-mos", (), "ptb-softmax", "PTB/bs", 1.9, plain=True),
        Case("ptb-moc", "ptb-moc", (), "ptb-softmax"),
        Case("wt2-softmax", "wt2-softmax", ("train.batch_size=15",), "wt2-softmax", "WT2/bs", 1.0, plain=True),
        Case("wt2-mos", "wt2-mos", (), "wt2-softmax", "WT2/bs", 2.5, plain=True),
        Case("wt2-moc", "wt2-moc", (), "wt2-softmax"),
        Case("1b-softmax", "1b-softmax", (), "1b-softmax", "1B/bs", 1.0, averaging=False),
        Case("1b-mos", "1b-mos", (), "1b-softmax", "1B/bs", 3.8, averaging=False),
        Case("ptb-mos-5", "ptb-mos", ("model.n_components=5",), "ptb-softmax", "PTB/bs", 1.2),
        Case("ptb-mos-10", "ptb-mos", ("model.n_components=10",), "ptb-softmax", "PTB/bs", 1.6),
        Case("wt2-mos-5", "wt2-mos", ("model.n_components=5",), "wt2-softmax", "WT2/bs", 1.3),
        Case("wt2-mos-10", "wt2-mos", ("model.n_components=10",), "wt2-softmax", "WT2/bs", 1.9),
        Case("ptb-softmax-best", "ptb-softmax", (), "ptb-softmax-best", "PTB/best-1", 1.0),
        Case("ptb-mos-best", "ptb-mos", (), "ptb-softmax-best", "PTB/best-1", 2.8),
        Case("wt2-softmax-best", "wt2-softmax", (), "wt2-softmax-best", "WT2/best-1", 1.0),
        Case("wt2-mos-best", "wt2-mos", (), "wt2-softmax-best", "WT2/best-1", 6.4),
    )
}
CPU_CASES = ("ptb-softmax", "ptb-mos")


@dataclass(frozen=True, kw_only=True)
class StepRow(TimedRow):
    """One case, run in one way."""

    recipe: str
    settings: str
    how: str  # FAST or PLAIN
    precision: str
    graphs: bool
    batch: int
    bptt: int
    K: int
    vocabulary: int
    parameters: int | None = None
    tokens_per_second: float | None = None
    peak_mib: float | None = None
    softmax: str
    slowdown: float | None = None
    paper_column: str
    paper_slowdown: float | None = None


def parse_cases(text: str) -> list[Case]:
    """Parse names of `CASES` and of recipes, separated by commas."""
    cases = []
    for name in filter(None, map(str.strip, text.split(","))):
        if name not in CASES and name not in RECIPES:
            known = list(dict.fromkeys([*CASES, *RECIPES]))
            raise UserError(f'there is no recipe called "{name}"{nearest(name, known)}')
        prefix = name.split("-")[0]
        cases.append(CASES.get(name) or Case(name, name, softmax=f"{prefix}-softmax"))
    if not cases:
        raise UserError("No recipes were given: write for example ptb-softmax,ptb-mos.")
    return cases


def choose_ways(case: Case, how: How, device: torch.device) -> list[str]:
    """Return FAST, PLAIN or both. "auto" is FAST on a GPU, with PLAIN for some cases, and PLAIN on a CPU."""
    if device.type == "cpu":
        if how in ("fast", "both"):
            raise UserError("Mixed precision and CUDA graphs need an NVIDIA GPU.")
        return [PLAIN]
    if how == "auto":
        return [FAST, PLAIN] if case.plain else [FAST]
    return {"fast": [FAST], "plain": [PLAIN], "both": [FAST, PLAIN]}[how]


def step_benchmark(
    cases: list[Case],
    device: torch.device,
    rounds: int,
    *,
    how: How = "auto",
    settings: Sequence[str] = (),
    vocabulary: int | None = None,
) -> Benchmark[StepRow]:
    """List the measurements of all cases; `settings` override every recipe's values."""
    columns = {**origin(device), "device": device.type}
    jobs = []
    for case in cases:
        for way in choose_ways(case, how, device):
            recipe = case_recipe(case, way, settings)
            train = recipe.train
            row = StepRow(
                recipe=case.name, settings=" ".join([*case.settings, *settings]), how=way, precision=train.precision,
                graphs=way == FAST, batch=train.batch_size, bptt=train.bptt, K=recipe.model.n_components,
                vocabulary=vocabulary or _vocabulary(recipe), softmax=case.softmax, paper_column=case.column,
                paper_slowdown=case.paper, **columns,
            )  # fmt: skip
            jobs.append(Job(row, partial(_measure, recipe, case.averaging, device, rounds)))
    return Benchmark("step", StepRow, jobs, fill_slowdowns)


def case_recipe(case: Case, way: str, settings: Sequence[str]) -> Recipe:
    """Return the recipe of a case with its own settings and those of the user."""
    recipe = BENCH_ONLY.get(case.recipe) or RECIPES[case.recipe]
    precision = "mixed" if way == FAST else "float32"
    return override(recipe, [*case.settings, f"train.precision={precision}", *settings])


def _vocabulary(recipe: Recipe) -> int:
    """Return the number of words in the recipe's corpus, which need not be installed if it is in the catalog."""
    known = {"1b": BILLION_VOCABULARY} | {name: info.vocabulary for name, info in CORPORA.items()}
    return known.get(recipe.data.corpus) or load_corpus(recipe.data.corpus, None).vocab_size


def _measure(recipe: Recipe, averaging: bool, device: torch.device, rounds: int, row: StepRow) -> StepRow:
    train = recipe.train
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
    torch.manual_seed(train.seed)
    model = build_model(recipe.model, row.vocabulary).to(device)
    optimizer = (TwoTailed if train.averaging == "two-tailed" else NTASGD)(model.parameters(), train.weight_decay)
    step = (GraphedStep if row.graphs else Step)(model, optimizer, train, device)
    if averaging:
        optimizer.start_averaging()
    words = torch.randint(row.vocabulary, (train.bptt + 1, train.batch_size), device=device)
    timing = time_blocks(
        lambda: step(words[:-1], words[1:], train.lr),
        wait=step.read,
        rounds=rounds,
        repeat=5 if cuda else 1,
        warm_up=4 if cuda else 1,
    )
    return replace(
        row,
        **asdict(timing),
        parameters=model.n_parameters(),
        tokens_per_second=train.batch_size * train.bptt / timing.median_ms * 1e3,
        peak_mib=torch.cuda.max_memory_allocated(device) / 2**20 if cuda else None,
    )


def fill_slowdowns(rows: list[StepRow]) -> list[StepRow]:
    """Fill in every row's time per word over that of its softmax, run in the same way."""
    speeds = {(row.recipe, row.how): row.tokens_per_second for row in rows}

    def slowdown(row: StepRow) -> float | None:
        softmax = speeds.get((row.softmax, row.how))
        return softmax / row.tokens_per_second if softmax and row.tokens_per_second else None

    return [replace(row, slowdown=slowdown(row)) for row in rows]
