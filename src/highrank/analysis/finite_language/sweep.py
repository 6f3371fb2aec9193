"""KL over D: the best Softmax, MoC and MoS that several starts of L-BFGS find, beside what theory says.

The KL that an optimiser finds is an upper bound on the attainable KL. For Softmax and MoC there is also a proven lower
bound, and where theory has an exact model, that model is constructed and measured too.
"""

import math
from dataclasses import dataclass, replace

import torch

from highrank.analysis.finite_language.bounds import mos_by_groups, ranks, softmax_by_svd, softmax_floor
from highrank.analysis.finite_language.models import NAMES, Fit, Kind, Model, fit_lbfgs, random_model
from highrank.data.synthetic import FiniteLanguage, low_rank_language
from highrank.errors import UserError
from highrank.progress import OnProgress, no_progress

EVALUATIONS: dict[Kind, int] = {"softmax": 300, "moc": 300, "mos": 600}  # of KL per start; a third of them if quick
JITTER = 0.02


@dataclass(frozen=True)
class Setup:
    """The language, the heads, and the D to fit."""

    contexts: int = 64  # N
    words: int = 32  # M
    rank: int | None = None  # of A; None becomes half of the smaller of contexts and words
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
        rank = max(lowest, smaller // 2) if self.rank is None else self.rank
        dims = tuple(sorted(set(self.dims))) or _default_dims(rank, self.quick)
        if not lowest <= rank <= smaller:
            raise UserError(f"the rank must be between {lowest} and min(contexts, words) = {smaller}, got {rank}.")
        if dims[0] < 1 or dims[-1] > larger:
            raise UserError(f"every D must be between 1 and max(contexts, words) = {larger}.")
        if not 2 <= self.components <= self.words:
            raise UserError(f"there must be between 2 and {self.words} components, one per word at most.")
        object.__setattr__(self, "rank", rank)
        object.__setattr__(self, "dims", dims)

    def language(self) -> FiniteLanguage:
        assert self.rank is not None
        generator = torch.Generator().manual_seed(self.seed)
        return low_rank_language(self.contexts, self.words, self.rank, self.scale, generator, self.unigram)


def _default_dims(rank: int, quick: bool) -> tuple[int, ...]:
    steps = 4 if quick else 8
    spread = {max(1, round(rank * i / steps)) for i in range(steps + 1)}
    near = {rank - 2, rank - 1, rank} if quick else {1, 2, 3, rank - 3, rank - 2, rank - 1, rank}
    return tuple(sorted(d for d in spread | near if 1 <= d <= rank))


@dataclass(frozen=True)
class Point:
    """One head at one D."""

    head: Kind
    lower_bound: float | None  # on the KL of this head; None: theory gives no bound
    found: Fit  # by the optimiser
    constructed: Fit | None  # the exact model, where theory has one
    collapse_error: float | None  # of a MoC: how much log Q differs if its K rows of logits are mixed instead


def sweep(language: FiniteLanguage, setup: Setup, on_progress: OnProgress = no_progress) -> list[Point]:
    """Fit all heads at every D, in increasing order; progress is counted in evaluations of KL per start."""
    generator = torch.Generator().manual_seed(setup.seed)
    bias = setup.bias
    n_components = setup.components
    enough = ranks(language).enough(bias)
    evaluations = {kind: n // 3 if setup.quick else n for kind, n in EVALUATIONS.items()}
    done = 0
    points: list[Point] = []
    best: dict[Kind, Model] = {}
    for d in setup.dims:
        by_svd = softmax_by_svd(language, d, bias)
        for kind in NAMES:
            random_starts = 1 if setup.quick else 2
            starts = [random_model(kind, language, n_components, d, bias, generator) for _ in range(random_starts)]
            if kind in best:
                starts.append(best[kind].widen(d, generator))
            if kind == "mos":
                starts.append(best["softmax"].as_mixture(kind, n_components))
                exact = mos_by_groups(language, n_components, d)
            elif d < enough:
                starts.append(by_svd.as_mixture(kind, n_components))
                exact = None
            else:  # not a start: the optimiser has to find its own way, for comparison
                exact = by_svd.as_mixture(kind, n_components)
            model = best[kind] = _fit_best(starts, language, evaluations[kind], generator)
            floor = None if kind == "mos" else softmax_floor(language, d, bias)
            constructed = None if exact is None else exact.measure(language)
            difference = (model.log_prob() - model.moc_log_prob()).abs().max().item() if kind == "moc" else None
            points.append(Point(kind, floor, model.measure(language), constructed, difference))
            done += evaluations[kind]
            on_progress(done, len(setup.dims) * sum(evaluations.values()))
    return points


def _fit_best(starts: list[Model], language: FiniteLanguage, evaluations: int, generator: torch.Generator) -> Model:
    """Return the model of lowest KL among the starts and what L-BFGS makes of each."""
    best = starts[0]
    lowest = math.inf
    for start in starts:
        for model in (start, fit_lbfgs(_jitter(start, generator), language, evaluations)):
            kl = language.kl(model.log_prob())
            if kl < lowest:  # never true of NaN
                best = model
                lowest = kl
    return best


def _jitter(model: Model, generator: torch.Generator) -> Model:
    """Perturb the components of a mixture: equal components have equal gradients and would stay equal."""
    if model.kind == "softmax":
        return model
    return replace(model, h=model.h + JITTER * torch.randn(model.h.shape, generator=generator, dtype=model.h.dtype))
