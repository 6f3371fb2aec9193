"""Settings of dynamic evaluation and of the cache, chosen on validation text.

Dynamic evaluation costs a whole pass for every point, so it is searched one knob at a time from coarse to fine:

    for factor 2, then sqrt(2):
        for each of lr, lambda, epsilon: multiply or divide it by the factor for as long as the loss falls (by 1e-4)
        again from the first knob, until a round moves none of them

The cache needs the model's own predictions only once, and for a window and a theta every lambda is arithmetic:

    score a grid of windows and thetas around the start
    score the neighbours of the best (half and twice the window, theta times and by sqrt(2)), until none is better

Both start from the settings that they are given, the published ones by default, both list every point that was tried,
and both say where the best one lies at an edge of them, as when they have tried enough: the optimum may be beyond.
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
from highrank.progress import OnProgress
from highrank.recipes.recipe import CacheSettings, DynamicSettings

KNOBS = ("lr", "lamb", "epsilon")  # of dynamic evaluation
CACHE_KNOBS = ("window", "theta", "lamb")
FACTORS = (2.0, math.sqrt(2))
LEAST_GAIN = 1e-4  # nats: a hundredth of a percent of perplexity; less is not worth a pass over the text
MOST_POINTS = 40  # a bound for a search that finds no end
# Of the cache: its first grid and the neighbours of a point, in doublings of the window and of theta.
WINDOWS = (0.0, -1.0, 1.0, 2.0)
THETAS = (0.0, -0.5, 0.5, -1.0, 1.0, -2.0, 2.0)
NEIGHBOURS = [(window, theta) for window in (-1.0, 0.0, 1.0) for theta in (-0.5, 0.0, 0.5)]
FEW = (0.001, 0.002, 0.005, 0.01)
LAMBDAS = (*FEW, *(i / 50 for i in range(1, 50)), *(1 - share for share in FEW))
MOST_ROUNDS = 20

OnPoint = Callable[[DynamicSettings, float, int], object]  # settings, their loss, points so far
Settings = TypeVar("Settings", DynamicSettings, CacheSettings)


@dataclass(frozen=True)
class Tuning:
    """A finished search, for records and JSON output."""

    split: str
    tokens: int  # predicted in each trial
    points: int  # settings tried
    best: DynamicSettings | CacheSettings
    at_edge: dict[str, str]  # knob -> "smallest", "largest" or "only": the best value lies at an edge of those tried
    tried: list[dict[str, float | None]]  # best first: the settings and their perplexity (None if it diverged)


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

        Not those for which the next value does as well, nor a window as long as the text: there is nothing to be found
        beyond.
        """
        edges = {}
        for knob in self.knobs:
            least: dict[float, float] = {}  # the least loss with each value
            for settings, nll in self.points:
                value = getattr(settings, knob)
                least[value] = min(nll, least.get(value, math.inf))
            values, best = sorted(least), getattr(self.best, knob)
            whole = knob == "window" and best >= self.tokens
            if len(values) == 1:
                if not whole:
                    edges[knob] = "only"
            elif best == values[0] and least[values[1]] > least[best] + LEAST_GAIN:
                edges[knob] = "smallest"
            elif best == values[-1] and least[values[-2]] > least[best] + LEAST_GAIN and not whole:
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
    on_progress: OnProgress | None = None,
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
    on_progress: OnProgress | None = None,
) -> Tuned[CacheSettings]:
    """The settings with the least loss on `ids` that the search meets; the model reads the text once."""
    blocks, tokens = read_once(model, ids, on_progress=on_progress), len(ids) - 1
    beyond = [lamb for lamb in (start.lamb / 2, (1 + start.lamb) / 2) if not LAMBDAS[0] <= lamb <= LAMBDAS[-1]]
    lambdas = sorted({*LAMBDAS, start.lamb, *beyond})  # who starts at an edge looks beyond it
    points: list[tuple[CacheSettings, float]] = []
    losses: dict[tuple[float, float], float] = {}  # the least at each place, in doublings of window and theta
    seen: set[tuple[int, float]] = set()  # windows, no longer than the text, and thetas
    places, least = [(window, theta) for window in WINDOWS for theta in THETAS], math.inf
    for _ in range(MOST_ROUNDS):
        new: dict[tuple[float, float], tuple[int, float]] = {}
        for place in places:
            window, theta = max(1, round(start.window * 2 ** place[0])), float(f"{start.theta * 2 ** place[1]:.6g}")
            if (what := (min(window, tokens), theta)) not in seen:
                seen.add(what)
                new[place] = window, theta
        if not new:
            break
        p = cache_probabilities(_watched(blocks, on_progress), list(new.values()))
        for (place, pair), p_cache in zip(new.items(), p.cache, strict=True):
            scored = [(CacheSettings(*pair, lamb), mixed_nll(p.model, p_cache, lamb)) for lamb in lambdas]
            losses[place] = min(nll for _, nll in scored)
            points += scored
        best = min(losses, key=losses.__getitem__)
        if losses[best] > least - LEAST_GAIN:
            break
        least = losses[best]
        places = [(best[0] + window, best[1] + theta) for window, theta in NEIGHBOURS]
    points.sort(key=lambda point: point[1])
    return Tuned(points[0][0], points, tokens)


def _watched(blocks: list[Block], on_progress: OnProgress | None) -> Iterator[Block]:
    done, total = 0, sum(len(block.targets) for block in blocks)
    for block in blocks:
        yield block
        done += len(block.targets)
        if on_progress:
            on_progress(done, total)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
