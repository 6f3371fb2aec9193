"""Each statement of section 2 put to the numbers: what was computed, what theory expects, what was found.

F(A) is the set of A + lambda 1^T over all lambda: A with any number added to each row. Shapes: A (N, M), lambda (N,).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from highrank.analysis.finite_language.bounds import (
    Ranks,
    centred,
    mos_by_groups,
    mos_enough,
    softmax_by_svd,
    softmax_floor,
)
from highrank.analysis.finite_language.laboratory import Model, rank
from highrank.analysis.finite_language.sweep import Point
from highrank.data.synthetic import FiniteLanguage

TRIALS = 50
ROUND_OFF = 1e-9  # far above what float64 leaves behind here, far below anything that is not zero


@dataclass(frozen=True)
class Check:
    name: str
    statement: str
    computed: str
    expected: str
    found: str
    holds: bool | None  # None: these sizes cannot show it


def algebra(language: FiniteLanguage, found: Ranks, n_components: int, bias: bool, seed: int) -> list[Check]:
    """The statements that need no fitting."""
    generator = torch.Generator().manual_seed(seed)
    return [
        property_1(language, generator),
        property_2(language, found, generator),
        proposition(language, found, bias),
        lemma(language, found),
        corollary(language, found, bias),
        mos_is_free(language, found, n_components, bias),
    ]


def property_1(language: FiniteLanguage, generator: torch.Generator) -> Check:
    a, p = language.log_p, language.log_p.exp()
    shifts = [10 * _normal(generator, len(a), 1) for _ in range(TRIALS)]
    kept = max((torch.softmax(a + shift, dim=1) - p).abs().max().item() for shift in shifts)
    # Moves that are no row shift: each row is moved by a vector of size one that sums to zero.
    moves = [torch.nn.functional.normalize(centred(_normal(generator, *a.shape)), dim=1) for _ in range(TRIALS)]
    changed = min((torch.softmax(a + move, dim=1) - p).abs().sum(dim=1).min().item() for move in moves)
    return Check(
        "Property 1",
        "F(A) is the set of all logits of P*: softmax(A') = P* if and only if A' is A plus a number on each row.",
        f"the softmax of {TRIALS} members of F(A) with random shifts, and of {TRIALS} matrices outside it",
        "inside, P* to round-off; outside, every row differs",
        f"inside, largest difference {kept:.1e}; outside, the least changed row moved by {changed:.1e} (sum of |dP|)",
        kept < ROUND_OFF < changed,
    )


def property_2(language: FiniteLanguage, found: Ranks, generator: torch.Generator) -> Check:
    a = language.log_p
    rows = centred(a)
    columns = torch.linalg.svd(rows, full_matrices=False).U[:, : found.lowest]  # spans the column space of A C
    size = torch.linalg.matrix_norm(a, ord=2).item()

    def ranks_with(shifts: list[Tensor]) -> set[int]:  # of A's own size, so that no rank drowns in round-off
        members = [rows + size * x / (x.norm() * a.shape[1] ** 0.5) for x in shifts]
        return {rank(torch.linalg.svdvals(x), a.shape, size) for x in members}

    low = ranks_with([columns @ _normal(generator, found.lowest, 1) for _ in range(TRIALS)])
    high = ranks_with([_normal(generator, len(a), 1) for _ in range(TRIALS)])
    seen = {found.a, found.lowest} | low | high
    full = found.lowest == len(a)  # then the columns of A C span everything, and no shift leaves them
    return Check(
        "Property 2",
        "The ranks in F(A) differ by at most one. More exactly: A C, A with centred rows, has the lowest, and "
        "A C + lambda 1^T has one more if and only if lambda is outside the column space of A C.",
        f"the ranks of A, A C, and A C + lambda 1^T for {TRIALS} lambda inside that space and {TRIALS} random ones",
        f"inside {found.lowest}; random {found.lowest + (not full)}; spread at most 1",
        f"A {found.a}, A C {found.lowest}; inside {_set(low)}; random {_set(high)}; spread {max(seen) - min(seen)}",
        low == {found.lowest} and high == {found.lowest + (not full)} and max(seen) - min(seen) <= 1,
    )


def proposition(language: FiniteLanguage, found: Ranks, bias: bool) -> Check:
    d = found.enough(bias)
    kl = language.kl(softmax_by_svd(language, d, bias).log_prob())
    floor = softmax_floor(language, d - 1, bias)
    what = "A centred by rows and columns" if bias else "A C"
    return Check(
        "Proposition 1",
        "A softmax can say P* if and only if D is at least the lowest rank in F(A)"
        + ("; with an output bias, at least the rank of A centred by rows and columns." if bias else "."),
        f"a softmax of D = {d} written down from the singular vectors of {what}; a proven lower bound at D = {d - 1}",
        f"KL 0 to round-off at D = {d}, above 0 at D = {d - 1}",
        f"KL {kl:.1e} at D = {d}; no softmax of D = {d - 1} goes below {floor:.1e}",
        abs(kl) < ROUND_OFF and floor > 0,
    )


def lemma(language: FiniteLanguage, found: Ranks) -> Check:
    def outside(model: Model) -> float:
        """How far H W^T - A is from being constant along rows, i.e. H W^T from F(A)."""
        return centred(model.context() @ model.w.T - language.log_p).abs().max().item()

    exact = softmax_by_svd(language, found.lowest, bias=False)
    near = outside(exact)
    difference = (exact.log_prob() - language.log_p).abs().max().item()
    worse = Model("softmax", exact.h[..., :-1], exact.prior, exact.w[:, :-1], None)
    return Check(
        "Lemma 1",
        "A softmax model says P* if and only if its logits H W^T lie in F(A).",
        "distance of H W^T from F(A), for the exact softmax and for the same with its last dimension taken away",
        "0 where Q = P*, above 0 where not",
        f"{near:.1e} where log Q - A is {difference:.1e}; {outside(worse):.1e} where KL is "
        f"{language.kl(worse.log_prob()):.1e}",
        near < ROUND_OFF and difference < ROUND_OFF and outside(worse) > ROUND_OFF,
    )


def corollary(language: FiniteLanguage, found: Ranks, bias: bool) -> Check:
    limit = found.a - 1 - bias
    floors = [softmax_floor(language, d, bias) for d in range(1, limit)]
    extra = " - 1" if bias else ""
    name = f"rank(A) - 1{extra} = {limit}"
    if not floors:
        return Check("Corollary", f"No softmax with D < {name} can say P*.", "-", "-", "no D is so small", None)
    return Check(
        "Corollary",
        f"If D < rank(A) - 1{extra}, no softmax can say P*, whatever network computes its context vectors"
        + (" (a bias counts as one more dimension)." if bias else "."),
        f"the proven lower bound on KL for every D below {name}",
        "above 0 for each",
        f"between {min(floors):.1e} (D = {len(floors)}) and {max(floors):.1e} (D = 1)",
        min(floors) > 0,
    )


def mos_is_free(language: FiniteLanguage, found: Ranks, n_components: int, bias: bool) -> Check:
    m = language.log_p.shape[1]
    d = mos_enough(m, n_components)
    model = mos_by_groups(language, n_components, d)
    assert model is not None  # D is enough
    kl, floor = language.kl(model.log_prob()), softmax_floor(language, d, bias)
    needs = found.enough(bias)
    return Check(
        "MoS is not bound",
        f"A MoS with D >= ceil(M / K) - 1 + min(2, K - 1) = {d} can say any language over {m} words, of whatever rank.",
        f"a MoS-{n_components} of D = {d} written down in closed form; the lower bound for every softmax of the same D",
        f"KL 0 to round-off; a softmax needs D = {needs}",
        f"KL {kl:.1e} (rank of A: {found.a}); "
        + (f"no softmax of D = {d} goes below {floor:.1e}" if d < needs else "here a softmax of this D can do it too"),
        abs(kl) < ROUND_OFF if d < needs else None if abs(kl) < ROUND_OFF else False,
    )


def fitted(language: FiniteLanguage, found: Ranks, points: list[Point], bias: bool) -> list[Check]:
    """The statements about models that an optimiser found."""
    low = [p for p in points if p.kind != "mos"]
    under = [p for p in low if p.floor is not None and p.fit.kl < p.floor * (1 - ROUND_OFF) - 1e-15]
    below = [p for p in low if p.fit.embed_dim < found.enough(bias)]
    nearest = min((p.fit.kl / p.floor for p in below if p.floor), default=None)
    mocs = [p.model for p in points if p.kind == "moc"]
    collapsed = max((_collapse(m).log_prob() - _mixed_logits(m)).abs().max().item() for m in mocs)
    bound = 1 + bias
    over = [p for p in low if p.fit.rank > p.fit.embed_dim + bound]
    free = [p for p in points if p.kind == "mos" and p.fit.embed_dim + bound < min(language.log_p.shape)]
    high = [p for p in free if p.fit.rank > p.fit.embed_dim + bound]
    softmax = {p.fit.embed_dim: p for p in points if p.kind == "softmax"}
    ratios = [p.fit.kl / softmax[p.fit.embed_dim].fit.kl for p in below if p.kind == "moc"]
    beaten = [
        p.fit.embed_dim for p in points if p.kind == "mos" and p.fit.kl < (softmax[p.fit.embed_dim].floor or 0) - 1e-15
    ]
    single = points[-1].model.h.shape[1] == 1
    return [
        Check(
            "Corollary, fitted",
            "What the optimiser finds respects the lower bound.",
            f"{len(low)} fits of Softmax and MoC, {len(below)} of them with too small a D",
            "none below the bound",
            f"{len(under)} below" + (f"; the nearest is {nearest:.0f} times the bound" if nearest else ""),
            not under,
        ),
        Check(
            "MoC is bound",
            "A MoC is a softmax whose context vector is sum_k pi_k h_k: the same bound on its rank, the same best KL.",
            f"every fitted MoC by mixing K rows of logits, and as one softmax; the ranks of log Q of {len(low)} fits",
            f"the same probabilities; ranks at most D + {bound}",
            f"largest difference of log Q {collapsed:.1e}; {len(over)} ranks above D + {bound}"
            + (f"; KL found {min(ratios):.3f} to {max(ratios):.3f} times the Softmax's" if ratios else ""),
            collapsed < ROUND_OFF and not over,
        ),
        Check(
            "MoS, fitted",
            f"The rank of log Q of a MoS is not bound by D + {bound}, and its KL not by the softmax's.",
            f"ranks of {len(free)} fitted MoS with D + {bound} < min(N, M); KL beside the softmax's lower bound",
            "K = 1: a softmax" if single else f"ranks above D + {bound}",
            f"{len(high)} of {len(free)} ranks above D + {bound}; "
            + (f"KL below what any softmax can reach at D = {_list(beaten)}" if beaten else "no KL below that bound"),
            (not high) if single else bool(high) if free else None,
        ),
    ]


def _mixed_logits(moc: Model) -> Tensor:
    """MoC as it is defined: the mixture of K rows of logits."""
    logits = moc.h @ moc.w.T + (0 if moc.b is None else moc.b)  # (N, K, M)
    return torch.log_softmax((torch.softmax(moc.prior, dim=-1).unsqueeze(-1) * logits).sum(dim=1), dim=-1)


def _collapse(moc: Model) -> Model:
    return Model("softmax", moc.context().unsqueeze(1), moc.prior[:, :1], moc.w, moc.b)


def _normal(generator: torch.Generator, *sizes: int) -> Tensor:
    return torch.randn(*sizes, generator=generator, dtype=torch.float64)


def _set(values: set[int]) -> str:
    return _list(sorted(values))


def _list(values: list[int]) -> str:
    return ", ".join(map(str, values))
