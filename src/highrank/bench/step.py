"""Whole training updates (forward, backward, clipping, update, averaging) on random words, and the paper's slowdowns.

The paper's appendix on computational time gives the training time of MoS over that of Softmax: "bs" at the same batch
size, "best-1" at the settings with which each is best, both on one GPU. `slowdown` here is the time a word over the
softmax's, measured in the same run. Where the paper had to cut a batch to fit its GPU's memory, we do not.

    # differs from the paper: it keeps the models' sizes comparable, but does not print those of MoS-5 and MoS-10; here
    # they are MoS-15's with fewer components.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from highrank.bench.record import Record, Row, Say, origin
from highrank.bench.timing import OUT_OF_TIME, Clock, Timing, reason, release
from highrank.bench.timing import time_columns as columns
from highrank.data.batches import Window
from highrank.data.catalog import CORPORA
from highrank.data.corpus import Corpus, load_corpus
from highrank.errors import UserError, nearest
from highrank.recipes import RECIPES, DataSpec, ModelSpec, Recipe, TrainSpec, override
from highrank.runs.folder import Run
from highrank.training.stages import Training

FAST, PLAIN = "mixed, graphs", "float32, eager"
BILLION_VOCABULARY = 100_000  # words of the paper's vocabulary for the 1B corpus

# The paper's models for the 1B corpus (its appendix B.2), tied: 113M and 119M parameters. No dropout, and nothing is
# said of regularisation or averaging. Not a recipe: the corpus is not in the catalog.
BILLION_TRAIN = TrainSpec(lr=20.0, batch_size=60, seed=1, bptt=35, alpha=0.0, beta=0.0, weight_decay=0.0)
BILLION_MOS = Recipe(
    "1b-mos", "1B sizes, bench only", DataSpec("1b"), ModelSpec("mos", 900, (1024, 1024), n_components=7), BILLION_TRAIN
)
BILLION_SOFTMAX = Recipe(
    "1b-softmax", "1B sizes, bench only", DataSpec("1b"), ModelSpec("softmax", 1024, (1024, 1024)), BILLION_TRAIN
)
BENCH_ONLY = {recipe.name: recipe for recipe in (BILLION_MOS, BILLION_SOFTMAX)}


@dataclass(frozen=True)
class Case:
    """A recipe under settings, and the cell of the paper's table that it stands for."""

    name: str
    recipe: str
    settings: tuple[str, ...] = ()
    softmax: str = ""  # the case that it is compared with
    column: str = ""  # of the paper's table
    paper: float | None = None
    plain: bool = False  # whether the default list also times it in float32 without graphs
    averaging: bool = field(default=True, kw_only=True)


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
CPU_DEFAULT = ("ptb-softmax", "ptb-mos")


def parse_cases(text: str) -> list[Case]:
    """Names of `CASES`, or of any recipe as it stands."""
    cases = []
    for name in filter(None, map(str.strip, text.split(","))):
        if name not in CASES and name not in RECIPES:
            raise UserError(
                f'there is no recipe called "{name}"{nearest(name, list(dict.fromkeys([*CASES, *RECIPES])))}'
            )
        prefix = name.split("-")[0]
        cases.append(CASES.get(name) or Case(name, name, (), f"{prefix}-softmax"))
    if not cases:
        raise UserError("no recipes were named: write for example --recipes ptb-softmax,ptb-mos.")
    return cases


def parse_ways(how: str, device: torch.device) -> Callable[[Case], list[str]]:
    """How to run each case. "auto" is fast on a GPU, and plain beside it for some; a CPU has only the plain way."""
    ways = {"fast": [FAST], "plain": [PLAIN], "both": [FAST, PLAIN]}
    if how not in (*ways, "auto"):
        raise UserError(f'there is no way "{how}"{nearest(how, [*ways, "auto"])}')
    if device.type == "cpu" and how in ("fast", "both"):
        raise UserError("mixed precision and CUDA graphs need an NVIDIA GPU: leave out --how.")
    if how != "auto":
        return lambda case: ways[how]
    if device.type == "cpu":
        return lambda case: [PLAIN]
    return lambda case: [FAST, PLAIN] if case.plain else [FAST]


def measure(
    record: Record,
    cases: list[Case],
    ways: Callable[[Case], list[str]],
    device: torch.device,
    *,
    settings: list[str],
    vocabulary: int | None,
    windows: int,
    clock: Clock,
    say: Say,
) -> None:
    """Adds a row a case and way to run it; `settings` override every recipe's."""
    begun = origin(device)
    for case in cases:
        for how in ways(case):
            recipe = _recipe(case, how, device, settings)
            row = _blank(case, how, recipe, device, settings)
            if clock.over():
                row["status"] = OUT_OF_TIME
            else:
                try:
                    row |= _measure(recipe, how, device, _vocabulary(recipe, vocabulary), windows, case.averaging)
                except Exception as error:
                    row["status"] = reason(error)
                release(device)
            record.add(row | begun)
            compare(record.rows)
            record.save()
            say(describe(record.rows[-1]))


def _recipe(case: Case, how: str, device: torch.device, settings: list[str]) -> Recipe:
    precision = "mixed" if how == FAST and device.type == "cuda" else "float32"
    recipe = BENCH_ONLY.get(case.recipe) or RECIPES[case.recipe]
    return override(recipe, [*case.settings, f"train.precision={precision}", *settings])


def _vocabulary(recipe: Recipe, asked: int | None) -> int:
    known = {"1b": BILLION_VOCABULARY} | {name: info.vocabulary for name, info in CORPORA.items()}
    return asked or known.get(recipe.data.corpus) or load_corpus(recipe.data.corpus, None).vocab_size


def _measure(recipe: Recipe, how: str, device: torch.device, vocabulary: int, windows: int, averaging: bool) -> Row:
    train, cuda = recipe.train, device.type == "cuda"
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(vocabulary, (train.batch_size * (train.bptt + 2),), generator=generator)
    corpus = Corpus("random", "word", [str(i) for i in range(vocabulary)], {"train": ids}, "")
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
    training = Training(recipe, corpus, Run(Path("unused")), device, graphs=how == FAST)
    if averaging:
        training.optimizer.start_averaging()
    window = Window(0, training.stream[: train.bptt], training.stream[1 : train.bptt + 1])
    repeat, warm_up, seconds = (5, 2, 3.0) if cuda else (1, 1, 60.0)
    times: list[float] = []
    began = time.perf_counter()
    for i in range(warm_up + windows):
        if len(times) >= 3 and time.perf_counter() - began > seconds:
            break
        start = time.perf_counter()
        for _ in range(repeat):
            training.train_window(window)
        training.read_totals()  # waits for the device
        if i >= warm_up:
            times.append((time.perf_counter() - start) * 1e3 / repeat)
    timing = Timing.of(times)
    return {
        **columns(timing),
        "vocabulary": vocabulary,
        "parameters": training.model.n_parameters(),
        "tokens_per_second": train.batch_size * train.bptt / timing.median_ms * 1e3,
        "peak_mib": torch.cuda.max_memory_allocated(device) / 2**20 if cuda else None,
    }


def _blank(case: Case, how: str, recipe: Recipe, device: torch.device, settings: list[str]) -> Row:
    train = recipe.train
    return {
        "recipe": case.name,
        "settings": " ".join([*case.settings, *settings]),
        "how": how,
        "status": "ok",
        "precision": train.precision,
        "graphs": how == FAST and device.type == "cuda",
        "device": device.type,
        "batch": train.batch_size,
        "bptt": train.bptt,
        "K": recipe.model.n_components,
        "vocabulary": None,
        "parameters": None,
        **columns(None),
        "tokens_per_second": None,
        "peak_mib": None,
        "softmax": case.softmax,
        "slowdown": None,
        "paper_column": case.column,
        "paper_slowdown": case.paper,
    }


def compare(rows: list[Row]) -> None:
    """Fills in every row's time a word over its softmax's, run in the same way."""
    speeds = {(row["recipe"], row["how"]): row["tokens_per_second"] for row in rows}
    for row in rows:
        softmax = speeds.get((row["softmax"], row["how"]))
        row["slowdown"] = softmax / row["tokens_per_second"] if softmax and row["tokens_per_second"] else None


def describe(row: Row) -> str:
    text = f"  {row['recipe']}, batch {row['batch']}, {row['how']}: "
    if row["median_ms"] is None:
        return text + row["status"]
    text += f"{row['median_ms']:,.2f} ms ({row['q25_ms']:,.2f} to {row['q75_ms']:,.2f})"
    text += f", {row['tokens_per_second']:,.0f} words a second"
    if row["slowdown"] is not None and row["softmax"] != row["recipe"]:
        paper = f" (paper {row['paper_slowdown']:g}x)" if row["paper_slowdown"] else ""
        text += f", {row['slowdown']:.2f}x {row['softmax']}{paper}"
    return text
