"""Numerical checks of the statements of section 2. F(A) and C are defined in `bounds`.

Shapes: A (N, M), lambda (N,).
"""

import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from highrank.analysis.finite_language import bounds
from highrank.analysis.finite_language.bounds import MatrixRanks, centred, softmax_by_svd, softmax_floor
from highrank.analysis.finite_language.models import COMPUTED, Model
from highrank.analysis.finite_language.sweep import Point, Setup, sweep
from highrank.analysis.rank import numerical_rank
from highrank.data.synthetic import FiniteLanguage
from highrank.progress import OnProgress, no_progress

TRIALS = 50
ROUND_OFF = 1e-9  # far above the round-off of float64 here, far below any difference that is not zero


@dataclass(frozen=True)
class Check:
    name: str
    statement: str  # what theory says
    found: str  # what was computed
    holds: bool | None  # None: the sizes are too small to show it


@dataclass(frozen=True)
class TheoryReport:
    """The result of `check_theory`, and the format of report.json."""

    setup: Setup
    seconds: float
    entropy: float  # of the language, nats
    ranks: MatrixRanks
    enough_for_softmax: int  # the D that a Softmax or MoC needs
    enough_for_mos_of_any_rank: int
    checks: list[Check]
    points: list[Point]


def check_theory(setup: Setup, on_progress: OnProgress = no_progress) -> TheoryReport:
    """Check every statement of section 2 on one language, and fit Softmax, MoC and MoS over D."""
    began = time.perf_counter()
    language = setup.language()
    found = bounds.ranks(language)
    checks = check_algebra(language, found, setup)
    points = sweep(language, setup, on_progress)
    checks += check_fits(found, points, setup)
    return TheoryReport(
        setup=setup,
        seconds=time.perf_counter() - began,
        entropy=language.entropy,
        ranks=found,
        enough_for_softmax=found.enough(setup.bias),
        enough_for_mos_of_any_rank=bounds.mos_enough(setup.words, setup.components),
        checks=checks,
        points=points,
    )


def check_algebra(language: FiniteLanguage, ranks: MatrixRanks, setup: Setup) -> list[Check]:
    """Check the statements that need no fitted models."""
    generator = torch.Generator().manual_seed(setup.seed)
    return [
        property_1(language, generator),
        property_2(language, ranks, generator),
        proposition(language, ranks, setup.bias),
        lemma(language, ranks),
        corollary(language, ranks, setup.bias),
        mos_is_free(language, ranks, setup.components, setup.bias),
    ]


def check_fits(ranks: MatrixRanks, points: list[Point], setup: Setup) -> list[Check]:
    """Check the statements about fitted models."""
    enough = ranks.enough(setup.bias)
    extra = 1 + setup.bias
    return [
        bound_holds(enough, points),
        moc_is_bound(enough, points, extra),
        mos_exceeds_the_bound(enough, min(setup.contexts, setup.words), points, extra),
    ]


def property_1(language: FiniteLanguage, generator: torch.Generator) -> Check:
    a = language.log_p
    p = a.exp()
    shifts = [10 * _normal(generator, len(a), 1) for _ in range(TRIALS)]
    inside = max((torch.softmax(a + shift, dim=1) - p).abs().max().item() for shift in shifts)
    # To leave F(A), move each row by a vector of size one that sums to zero.
    moves = [normalize(centred(_normal(generator, *a.shape)), dim=1) for _ in range(TRIALS)]
    outside = min((torch.softmax(a + move, dim=1) - p).abs().sum(dim=1).min().item() for move in moves)
    return Check(
        "Property 1",
        "softmax(A') = P* if and only if A' is in F(A), that is A plus a number on each row.",
        f"{TRIALS} members of F(A) differ from P* by at most {inside:.1e}; in {TRIALS} matrices outside F(A), every "
        f"row differs by at least {outside:.1e} (sum of |dP|)",
        inside < ROUND_OFF < outside,
    )


def property_2(language: FiniteLanguage, ranks: MatrixRanks, generator: torch.Generator) -> Check:
    a = language.log_p
    rows = centred(a)
    columns = torch.linalg.svd(rows, full_matrices=False).U[:, : ranks.lowest]  # spans the column space of A C
    size = torch.linalg.matrix_norm(a, ord=2).item()

    def ranks_with(shifts: list[Tensor]) -> set[int]:  # shifts are scaled to A's size, well above round-off
        members = [rows + size * x / (x.norm() * a.shape[1] ** 0.5) for x in shifts]
        return {numerical_rank(torch.linalg.svdvals(x), a.shape, COMPUTED * size) for x in members}

    inside = ranks_with([columns @ _normal(generator, ranks.lowest, 1) for _ in range(TRIALS)])
    random = ranks_with([_normal(generator, len(a), 1) for _ in range(TRIALS)])
    highest = ranks.lowest + (ranks.lowest < len(a))  # the columns of an A C of rank N span every shift
    return Check(
        "Property 2",
        "A C, A with centred rows, has the lowest rank in F(A), and A C + lambda 1^T has one more if and only if "
        "lambda is outside the column space of A C.",
        f"rank of A {ranks.a}, of A C {ranks.lowest}; of A C + lambda 1^T {_join(inside)} for {TRIALS} lambda in that "
        f"space and {_join(random)} for {TRIALS} random ones (expected {highest})",
        inside == {ranks.lowest} and random == {highest} and ranks.lowest <= ranks.a <= ranks.lowest + 1,
    )


def proposition(language: FiniteLanguage, ranks: MatrixRanks, bias: bool) -> Check:
    d = ranks.enough(bias)
    kl = language.kl(softmax_by_svd(language, d, bias).log_prob())
    floor = softmax_floor(language, d - 1, bias)
    needed = "the rank of A centred by rows and columns" if bias else "the lowest rank in F(A)"
    return Check(
        "Proposition 1",
        f"A softmax{' with a bias' if bias else ''} can represent P* if and only if D is at least {needed}, here {d}.",
        f"KL {kl:.1e} for the softmax of D = {d} given by the singular vectors; no softmax of D = {d - 1} is below "
        f"{floor:.1e}",
        abs(kl) < ROUND_OFF and floor > 0,
    )


def lemma(language: FiniteLanguage, ranks: MatrixRanks) -> Check:
    def distance(model: Model) -> float:
        """Return how far H W^T - A is from constant rows, i.e. H W^T from F(A)."""
        return centred(model.context() @ model.w.T - language.log_p).abs().max().item()

    exact = softmax_by_svd(language, ranks.lowest, bias=False)
    error = (exact.log_prob() - language.log_p).abs().max().item()
    worse = replace(exact, h=exact.h[..., :-1], w=exact.w[:, :-1])
    return Check(
        "Lemma 1",
        "A softmax model equals P* if and only if its logits H W^T lie in F(A).",
        f"the exact softmax has distance {distance(exact):.1e} from F(A) and |log Q - A| {error:.1e}; without its last "
        f"dimension, {distance(worse):.1e} and KL {language.kl(worse.log_prob()):.1e}",
        distance(exact) < ROUND_OFF and error < ROUND_OFF < distance(worse),
    )


def corollary(language: FiniteLanguage, ranks: MatrixRanks, bias: bool) -> Check:
    limit = ranks.a - 1 - bias  # a bias counts as one more dimension
    floors = [softmax_floor(language, d, bias) for d in range(1, limit)]
    return Check(
        "Corollary",
        f"If D < rank(A) - {1 + bias} = {limit}, no softmax can represent P*, whatever network computes its context "
        "vectors.",
        f"the lower bound on KL is between {min(floors):.1e} (D = {len(floors)}) and {max(floors):.1e} (D = 1)"
        if floors
        else "there is no such D",
        min(floors) > 0 if floors else None,
    )


def mos_is_free(language: FiniteLanguage, ranks: MatrixRanks, n_components: int, bias: bool) -> Check:
    words = language.log_p.shape[1]
    d = bounds.mos_enough(words, n_components)
    model = bounds.mos_by_groups(language, n_components, d)
    assert model is not None  # D is enough
    kl = language.kl(model.log_prob())
    exact = abs(kl) < ROUND_OFF
    needed = ranks.enough(bias)
    floor = f", and none of D = {d} is below {softmax_floor(language, d, bias):.1e}" if d < needed else ""
    return Check(
        "MoS is not bound",
        f"A MoS with D >= ceil(M / K) - 1 + min(2, K - 1) = {d} can represent any language over {words} words.",
        f"KL {kl:.1e} for a MoS-{n_components} of D = {d} in closed form (rank of A: {ranks.a}); a softmax needs D = "
        f"{needed}{floor}",
        None if exact and d >= needed else exact,
    )


def bound_holds(enough: int, points: list[Point]) -> Check:
    bounded = [(p.found, p.lower_bound) for p in points if p.lower_bound is not None]
    below = [fit for fit, floor in bounded if fit.kl < floor * (1 - ROUND_OFF) - 1e-15]
    ratios = [fit.kl / floor for fit, floor in bounded if floor and fit.embed_dim < enough]
    nearest = f"; of {len(ratios)} with too small a D, the nearest is {min(ratios):.0f} times it" if ratios else ""
    return Check(
        "Corollary, fitted",
        "No fitted Softmax or MoC has a KL below the lower bound.",
        f"{len(below)} of {len(bounded)} fits are below the bound{nearest}",
        not below,
    )


def moc_is_bound(enough: int, points: list[Point], extra: int) -> Check:
    over = [p for p in points if p.head != "mos" and p.found.rank > p.found.embed_dim + extra]
    difference = max(p.collapse_error for p in points if p.collapse_error is not None)
    kl = {(p.head, p.found.embed_dim): p.found.kl for p in points}
    ratios = [kl["moc", d] / kl["softmax", d] for head, d in kl if head == "moc" and d < enough]
    compared = f"; KL is {min(ratios):.3f} to {max(ratios):.3f} times that of the Softmax" if ratios else ""
    return Check(
        "MoC is bound",
        f"A MoC is a softmax with context vector sum_k pi_k h_k: same best KL, and a rank of at most D + {extra}.",
        f"mixing K rows of logits and mixing context vectors differ by {difference:.1e} in log Q; {len(over)} fits of "
        f"Softmax and MoC have a rank above D + {extra}{compared}",
        difference < ROUND_OFF and not over,
    )


def mos_exceeds_the_bound(enough: int, full_rank: int, points: list[Point], extra: int) -> Check:
    fits = [p.found for p in points if p.head == "mos"]
    # Where D is enough for a softmax, the best MoS may equal one, with its rank.
    free = [fit for fit in fits if fit.embed_dim < enough and fit.embed_dim + extra < full_rank]
    high = [fit for fit in free if fit.rank > fit.embed_dim + extra]
    floors = {p.found.embed_dim: p.lower_bound or 0 for p in points if p.head == "softmax"}
    lower = [fit.embed_dim for fit in fits if fit.kl < floors[fit.embed_dim] - 1e-15]
    return Check(
        "MoS, fitted",
        f"The rank of a MoS can exceed D + {extra}.",
        f"{len(high)} of {len(free)} ranks above D + {extra}; KL below the lower bound of the softmax at D = "
        f"{_join(lower) or '(none)'}",
        bool(high) if free else None,
    )


def _normal(generator: torch.Generator, *sizes: int) -> Tensor:
    return torch.randn(*sizes, generator=generator, dtype=torch.float64)


def _join(values: set[int] | list[int]) -> str:
    return ", ".join(map(str, sorted(values)))
