"""Search for settings of dynamic evaluation and of the cache on validation text.

Dynamic evaluation needs a whole pass per point, so the search changes one setting at a time, from coarse to fine:

    for factor 2, then sqrt(2):
        repeat until a round changes nothing:
            for each of lr, lambda, epsilon:
                multiply it, then divide it, by the factor for as long as the loss falls by at least 1e-4 nats

The cache needs only one pass of the model, and for a given window and theta every lambda is cheap arithmetic:

    score a grid of windows and thetas around the start, each with about 50 values of lambda
    repeat until the loss stops falling:
        score the neighbours of the best point: half and double the window, theta divided and multiplied by sqrt(2)

Both searches start from given settings and list every point. They also report the settings whose best value lies at an
edge of the values tried, where a better one may lie beyond.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Generic, TypeVar

from torch import Tensor

from highrank.evaluation.cache import Block, cache_probabilities, mixed_nll, read_once
from highrank.evaluation.dynamic import dynamic_evaluate
from highrank.evaluation.perplexity import perplexity
from highrank.models.language_model import LanguageModel
from highrank.progress import OnProgress, no_progress
from highrank.recipes.recipe import CacheSettings, DynamicSettings

DYNAMIC_KNOBS = ("lr", "lamb", "epsilon")
CACHE_KNOBS = ("window", "theta", "lamb")
LEAST_GAIN = 1e-4  # nats, or 0.01 % of perplexity: a smaller gain does not justify another pass over the text
FACTORS = (2.0, math.sqrt(2))
MOST_POINTS = 40  # of dynamic evaluation, if the loss never stops falling
MOST_ROUNDS = 20  # of the cache, likewise
# The first grid of the cache and the neighbours of a point, as powers of 2 that multiply window and theta.
GRID = [(window, theta) for window in (0.0, -1.0, 1.0, 2.0) for theta in (0.0, -0.5, 0.5, -1.0, 1.0, -2.0, 2.0)]
NEIGHBOURS = [(window, theta) for window in (-1.0, 0.0, 1.0) for theta in (-0.5, 0.0, 0.5)]
SMALL_LAMBDAS = (0.001, 0.002, 0.005, 0.01)
LAMBDAS = (*SMALL_LAMBDAS, *(i / 50 for i in range(1, 50)), *(1 - lamb for lamb in SMALL_LAMBDAS))

OnPoint = Callable[[DynamicSettings, float, int], object]  # settings, their loss, number of points so far
Settings = TypeVar("Settings", DynamicSettings, CacheSettings)


@dataclass(frozen=True)
class Tuning:
    """The summary of a search, for records and JSON output."""

    split: str
    tokens: int  # predicted per point
    points: int
    best: DynamicSettings | CacheSettings
    at_edge: dict[str, str]  # see `Tuned.at_edge`
    tried: list[dict[str, float | None]]  # best first: the settings and their perplexity, None if it diverged


@dataclass(frozen=True)
class Tuned(Generic[Settings]):
    """The result of a search: every point, with its loss in nats per token (infinite if it diverged), best first."""

    points: list[tuple[Settings, float]]
    tokens: int  # predicted per point

    @property
    def best(self) -> Settings:
        return self.points[0][0]

    @property
    def at_edge(self) -> dict[str, str]:
        """The settings whose best value is the "smallest" or "largest" that was tried, or the "only" one.

        A value is not at an edge if its neighbour gives the same loss, or if it is a window as long as the text.
        """
        edges = {}
        for knob in DYNAMIC_KNOBS if isinstance(self.best, DynamicSettings) else CACHE_KNOBS:
            least: dict[float, float] = {}  # value -> the least loss of the points with that value
            for settings, nll in self.points:
                value = getattr(settings, knob)
                least[value] = min(nll, least.get(value, math.inf))
            best = getattr(self.best, knob)
            values = sorted(least)
            if knob == "window" and best >= self.tokens:
                continue
            if len(values) == 1:
                edges[knob] = "only"
            elif best == values[0] and least[values[1]] > least[best] + LEAST_GAIN:
                edges[knob] = "smallest"
            elif best == values[-1] and least[values[-2]] > least[best] + LEAST_GAIN:
                edges[knob] = "largest"
        return edges

    def summary(self, most: int | None = None) -> Tuning:
        """Return the search with all of its points, or with the best `most`."""
        tried = []
        for settings, nll in self.points[:most]:
            ppl = perplexity(nll)
            tried.append({**asdict(settings), "perplexity": ppl if math.isfinite(ppl) else None})
        return Tuning("valid", self.tokens, len(self.points), self.best, self.at_edge, tried)


def tune_dynamic(
    model: LanguageModel,
    ids: Tensor,  # (T,) validation text
    statistics: list[Tensor],
    start: DynamicSettings,
    on_point: OnPoint | None = None,
    on_progress: OnProgress = no_progress,
) -> Tuned[DynamicSettings]:
    """Search for the settings of dynamic evaluation with the least loss on `ids`."""
    points: dict[DynamicSettings, float] = {}

    def loss(settings: DynamicSettings) -> float:
        # Rounding makes multiplying twice by sqrt(2) and once by 2 the same point.
        rounded: dict[str, Any] = {knob: float(f"{getattr(settings, knob):.6g}") for knob in DYNAMIC_KNOBS}
        settings = replace(settings, **rounded)
        if settings not in points:
            if len(points) == MOST_POINTS:
                return math.inf
            nll = dynamic_evaluate(model, ids, statistics, settings, on_progress).nll
            points[settings] = nll if math.isfinite(nll) else math.inf
            if on_point:
                on_point(settings, points[settings], len(points))
        return points[settings]

    coarse_to_fine(start, loss)
    return Tuned(sorted(points.items(), key=lambda point: point[1]), len(ids) - 1)


def coarse_to_fine(start: DynamicSettings, loss: Callable[[DynamicSettings], float]) -> DynamicSettings:
    """Return a local minimum of `loss`, found by changing one setting at a time (see the module's docstring)."""
    best = start
    least = loss(start)
    for factor in FACTORS:
        moved = True
        while moved:
            moved = False
            for knob in DYNAMIC_KNOBS:
                for step in (factor, 1 / factor):
                    while (nll := loss(nearby := _multiply(best, knob, step))) < least - LEAST_GAIN:
                        best, least, moved = nearby, nll, True
    return best


def _multiply(settings: DynamicSettings, knob: str, factor: float) -> DynamicSettings:
    changed: dict[str, Any] = {knob: getattr(settings, knob) * factor}
    return replace(settings, **changed)


def tune_cache(
    model: LanguageModel,
    ids: Tensor,  # (T,) validation text
    start: CacheSettings,
    on_progress: OnProgress = no_progress,
) -> Tuned[CacheSettings]:
    """Search for the settings of the cache with the least loss on `ids`."""
    tokens = len(ids) - 1
    blocks = read_once(model, ids, on_progress=on_progress)
    # A search that starts outside the usual lambdas, or at an edge of them, also looks beyond its start.
    beyond = [lamb for lamb in (start.lamb / 2, (1 + start.lamb) / 2) if not LAMBDAS[0] <= lamb <= LAMBDAS[-1]]
    lambdas = sorted({*LAMBDAS, start.lamb, *beyond})
    points: list[tuple[CacheSettings, float]] = []
    losses: dict[tuple[float, float], float] = {}  # the least loss at each place of the grid
    seen: set[tuple[int, float]] = set()
    places = GRID
    least = math.inf
    for _ in range(MOST_ROUNDS):
        new: dict[tuple[float, float], tuple[int, float]] = {}  # place -> window, theta
        for place in places:
            window = max(1, round(start.window * 2 ** place[0]))
            theta = float(f"{start.theta * 2 ** place[1]:.6g}")
            key = (min(window, tokens), theta)  # windows longer than the text are all equal
            if key not in seen:
                seen.add(key)
                new[place] = window, theta
        if not new:
            break
        p = cache_probabilities(_with_progress(blocks, on_progress), list(new.values()))
        for (place, (window, theta)), p_cache in zip(new.items(), p.cache, strict=True):
            scored = [(CacheSettings(window, theta, lamb), mixed_nll(p.model, p_cache, lamb)) for lamb in lambdas]
            losses[place] = min(nll for _, nll in scored)
            points += scored
        best = min(losses, key=losses.__getitem__)
        if losses[best] > least - LEAST_GAIN:
            break
        least = losses[best]
        places = [(best[0] + window, best[1] + theta) for window, theta in NEIGHBOURS]
    return Tuned(sorted(points, key=lambda point: point[1]), tokens)


def _with_progress(blocks: list[Block], on_progress: OnProgress) -> Iterator[Block]:
    done = 0
    total = sum(len(block.targets) for block in blocks)
    for block in blocks:
        yield block
        done += len(block.targets)
        on_progress(done, total)
