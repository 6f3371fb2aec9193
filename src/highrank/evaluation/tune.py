"""Settings of dynamic evaluation and of the cache, chosen on validation text.

Dynamic evaluation costs a whole pass for every point, so it is searched one knob at a time from coarse to fine:

    for factor 2, then sqrt(2):
        for each of lr, lambda, epsilon: multiply or divide it by the factor for as long as the loss falls (by 1e-4)
        again from the first knob, until a round moves none of them

The cache needs the model's own predictions only once: one pass scores a whole grid of windows and thetas, and for each
of them lambda is arithmetic. Both start from the settings that they are given, the published ones by default, both list
every point that was tried, and both say where the best one lies at an edge of them: the optimum may be beyond.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Generic, TypeVar

from torch import Tensor

from highrank.evaluation.cache import cache_probabilities, mixed_nll
from highrank.evaluation.dynamic import dynamic_evaluate
from highrank.evaluation.perplexity import perplexity
from highrank.models.language_model import LanguageModel
from highrank.recipes.recipe import CacheSettings, DynamicSettings

KNOBS = ("lr", "lamb", "epsilon")  # of dynamic evaluation
CACHE_KNOBS = ("window", "theta", "lamb")
FACTORS = (2.0, math.sqrt(2))
LEAST_GAIN = 1e-4  # nats: a hundredth of a percent of perplexity; less is not worth a pass over the text
MOST_POINTS = 40  # a bound for a search that finds no end
# Of the cache: multiples of the window, the theta and the odds of the lambda given, and all of these lambdas.
WINDOWS = (0.5, 1.0, 2.0, 4.0)
THETAS = (0.25, 0.5, 1 / math.sqrt(2), 1.0, math.sqrt(2), 2.0, 4.0)
ODDS = (0.25, 0.5, 2.0, 4.0)
LAMBDAS = tuple(i / 50 for i in range(1, 26))  # 0.02 to 0.5

OnPoint = Callable[[DynamicSettings, float, int], object]  # settings, their loss, points so far
Settings = TypeVar("Settings", DynamicSettings, CacheSettings)


@dataclass(frozen=True)
class Tuned(Generic[Settings]):
    """The best settings, and every point tried with its loss in nats a token (infinite where it diverged)."""

    best: Settings
    points: list[tuple[Settings, float]]
    tokens: int

    @property
    def knobs(self) -> tuple[str, ...]:
        return KNOBS if isinstance(self.best, DynamicSettings) else CACHE_KNOBS

    @property
    def at_edge(self) -> dict[str, str]:
        """The knobs whose best value is the "smallest" or "largest" tried, or the "only" one.

        Not those for which the next value does as well: there is nothing to be found beyond, as for windows longer than
        the text.
        """
        edges = {}
        for knob in self.knobs:
            least: dict[float, float] = {}  # the least loss with each value
            for settings, nll in self.points:
                value = getattr(settings, knob)
                least[value] = min(nll, least.get(value, math.inf))
            values, best = sorted(least), getattr(self.best, knob)
            if len(values) == 1:
                edges[knob] = "only"
            elif best == values[0] and least[values[1]] > least[best] + LEAST_GAIN:
                edges[knob] = "smallest"
            elif best == values[-1] and least[values[-2]] > least[best] + LEAST_GAIN:
                edges[knob] = "largest"
        return edges

    def as_json(self, most: int | None = None) -> dict[str, Any]:
        """Best first, all of them or the best `most`."""
        tried = [{**asdict(s), "perplexity": _finite(perplexity(nll))} for s, nll in self.points[:most]]
        about = {"split": "valid", "tokens": self.tokens, "points": len(self.points)}
        return {**about, "best": asdict(self.best), "at_edge": self.at_edge, "tried": tried}


def tune_dynamic(
    model: LanguageModel,
    ids: Tensor,  # (T,) validation text
    statistics: list[Tensor],
    start: DynamicSettings,
    on_point: OnPoint | None = None,
    on_progress: Callable[[int, int], object] | None = None,
) -> Tuned[DynamicSettings]:
    """The settings with the least loss on `ids` that the search meets; the statistics serve every point."""
    tried: dict[tuple[float, ...], tuple[DynamicSettings, float]] = {}

    def loss(settings: DynamicSettings) -> float:
        # Rounded: multiplying by sqrt(2) twice and by 2 once is the same point.
        key = tuple(float(f"{getattr(settings, knob):.6g}") for knob in KNOBS)
        if key not in tried:
            if len(tried) == MOST_POINTS:
                return math.inf  # no further: the best so far stays
            rounded: dict[str, Any] = dict(zip(KNOBS, key, strict=True))
            settings = replace(settings, **rounded)
            nll = dynamic_evaluate(model, ids, statistics, settings, on_progress).nll
            tried[key] = settings, nll if math.isfinite(nll) else math.inf
            if on_point:
                on_point(*tried[key], len(tried))
        return tried[key][1]

    coarse_to_fine(start, loss)
    points = sorted(tried.values(), key=lambda point: point[1])
    return Tuned(points[0][0], points, len(ids) - 1)


def coarse_to_fine(start: DynamicSettings, loss: Callable[[DynamicSettings], float]) -> DynamicSettings:
    """The search of the docstring above: a local minimum on a grid of the finest factor."""
    best, least = start, loss(start)
    for factor in FACTORS:
        moved = True
        while moved:
            moved = False
            for knob in KNOBS:
                for step in (factor, 1 / factor):
                    while (nll := loss(nearby := _times(best, knob, step))) < least - LEAST_GAIN:
                        best, least, moved = nearby, nll, True
    return best


def _times(settings: DynamicSettings, knob: str, factor: float) -> DynamicSettings:
    changed: dict[str, Any] = {knob: getattr(settings, knob) * factor}
    return replace(settings, **changed)


def tune_cache(
    model: LanguageModel,
    ids: Tensor,  # (T,) validation text
    start: CacheSettings,
    on_progress: Callable[[int, int], object] | None = None,
) -> Tuned[CacheSettings]:
    """The best of a grid around `start`, all of it scored in one pass over `ids`."""
    windows = sorted({max(1, round(start.window * w)) for w in WINDOWS})
    thetas = sorted({float(f"{start.theta * t:.6g}") for t in THETAS})
    odds = (start.lamb / (1 - start.lamb) * o for o in ODDS)
    around = (float(f"{o / (1 + o):.6g}") for o in odds)
    lambdas = sorted({*LAMBDAS, start.lamb, *(share for share in around if 0 < share < 1)})
    scored = cache_probabilities(model, ids, windows, thetas, on_progress=on_progress)
    points = [
        (CacheSettings(window, theta, lamb), mixed_nll(scored.model, scored.cache[i, j], scored.empty, lamb))
        for i, window in enumerate(windows)
        for j, theta in enumerate(thetas)
        for lamb in lambdas
    ]
    points.sort(key=lambda point: point[1])
    return Tuned(points[0][0], points, len(ids) - 1)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
