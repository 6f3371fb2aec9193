"""Section 2 of the paper on a finite language whose probabilities are all known (`highrank theory`).

bounds.py       ranks, lower bounds and exact models, by algebra
laboratory.py   models with free contexts, how to fit them, and the measurement of a fit
fit_head.py     the same for a module of highrank.heads (quickstart)
sweep.py        the best KL of each head over D
checks.py       each statement of the paper against the numbers

`check_theory` runs all of it. docs/theory.md has the proofs.
"""

import time
from dataclasses import dataclass

import torch

from highrank.analysis.finite_language.bounds import Ranks, mos_enough, ranks
from highrank.analysis.finite_language.checks import Check, check_algebra, check_fits
from highrank.analysis.finite_language.sweep import FULL, QUICK, Effort, Point, sweep
from highrank.data.synthetic import FiniteLanguage, low_rank_language
from highrank.errors import UserError
from highrank.progress import OnProgress, no_progress

LARGEST = 20_000_000  # elements of an (N, K, M) tensor


@dataclass(frozen=True)
class Setup:
    """The language, the heads, and the D to fit."""

    contexts: int = 64  # N
    words: int = 32  # M
    rank: int = 0  # of A; 0 stands for half of the smaller of contexts and words
    dims: tuple[int, ...] = ()  # empty: about a dozen D up to the rank, including all close to it
    components: int = 4  # K
    bias: bool = False
    unigram: bool = False
    seed: int = 1
    quick: bool = False
    scale: float = 1.5  # standard deviation of the logits: a few words share most of the probability

    def __post_init__(self) -> None:
        smaller, larger = sorted((self.contexts, self.words))
        lowest = 2 + self.unigram
        rank = self.rank or max(lowest, smaller // 2)
        dims = tuple(sorted(set(self.dims))) or _default_dims(rank, self.quick)
        if not lowest <= rank <= smaller:
            raise UserError(f"the rank must be between {lowest} and min(contexts, words) = {smaller}, got {rank}.")
        if dims[0] < 1 or dims[-1] > larger:
            raise UserError(f"every D must be between 1 and max(contexts, words) = {larger}.")
        if self.contexts * self.words * self.components > LARGEST:
            raise UserError(f"the language is too large: keep contexts x words x components below {LARGEST:,}.")
        object.__setattr__(self, "rank", rank)
        object.__setattr__(self, "dims", dims)

    def language(self) -> FiniteLanguage:
        generator = torch.Generator().manual_seed(self.seed)
        return low_rank_language(self.contexts, self.words, self.rank, self.scale, generator, self.unigram)


@dataclass(frozen=True)
class TheoryReport:
    """The result of `check_theory`, and the format of report.json."""

    setup: Setup
    effort: Effort
    seconds: float
    entropy: float  # of the language, nats
    ranks: Ranks
    enough_for_softmax: int  # the D that a Softmax or MoC needs
    enough_for_mos_of_any_rank: int
    checks: list[Check]
    points: list[Point]


def check_theory(setup: Setup, on_progress: OnProgress = no_progress) -> TheoryReport:
    """Check every statement of section 2 on one language, and fit Softmax, MoC and MoS over D."""
    began = time.perf_counter()
    language = setup.language()
    found = ranks(language)
    effort = QUICK if setup.quick else FULL
    checks = check_algebra(language, found, setup.components, setup.bias, setup.seed)
    points = sweep(language, setup.dims, setup.components, setup.bias, setup.seed, effort, on_progress)
    checks += check_fits(found, points, min(language.log_p.shape), setup.bias)
    return TheoryReport(
        setup=setup,
        effort=effort,
        seconds=time.perf_counter() - began,
        entropy=language.entropy,
        ranks=found,
        enough_for_softmax=found.enough(setup.bias),
        enough_for_mos_of_any_rank=mos_enough(setup.words, setup.components),
        checks=checks,
        points=points,
    )


def _default_dims(rank: int, quick: bool) -> tuple[int, ...]:
    steps = 4 if quick else 8
    spread = {max(1, round(rank * i / steps)) for i in range(steps + 1)}
    near = {rank - 2, rank - 1, rank} if quick else {1, 2, 3, rank - 3, rank - 2, rank - 1, rank}
    return tuple(sorted(d for d in spread | near if 1 <= d <= rank))
