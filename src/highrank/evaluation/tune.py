"""Search for settings of dynamic evaluation and of the cache on validation text, starting from given ones.

Dynamic evaluation needs a whole pass per point, so the search changes one setting at a time, from coarse to fine:

    for factor 2, then sqrt(2):
        repeat until a round changes nothing:
            for each of lr, lambda, epsilon:
                multiply it, then divide it, by the factor for as long as the loss falls by at least 1e-4 nats

The cache needs only one pass of the model, and for a given window and theta every lambda is cheap arithmetic:

    score a grid of windows and thetas around the start, each with about 50 values of lambda
    repeat until the loss stops falling:
        score the neighbours of the best point: half and double the window, theta divided and multiplied by sqrt(2)
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from highrank.evaluation.cache import Block, cache_probabilities, mixed_losses, read_blocks
from highrank.evaluation.dynamic import dynamic_evaluate
from highrank.evaluation.perplexity import in_eval_mode
from highrank.evaluation.score import perplexity
from highrank.models.language_model import LanguageModel
from highrank.progress import OnProgress, no_progress
from highrank.recipes.recipe import CacheSettings, DynamicSettings

KNOBS = ("lr", "lamb", "epsilon")  # settings of dynamic evaluation that are tuned
LEAST_GAIN = 1e-4  # nats, or 0.01 % of perplexity: a smaller gain does not justify another pass over the text
FACTORS = (2.0, math.sqrt(2))
MOST_POINTS = 40  # of dynamic evaluation, if the loss never stops falling
# The first grid of the cache and the neighbours of a point: exponents of 2, which multiply window and theta.
Place = tuple[float, float]
GRID = [(window, theta) for window in (0.0, -1.0, 1.0, 2.0) for theta in (0.0, -0.5, 0.5, -1.0, 1.0, -2.0, 2.0)]
NEIGHBOURS = [(window, theta) for window in (-1.0, 0.0, 1.0) for theta in (-0.5, 0.0, 0.5)]
SMALL_LAMBDAS = (0.001, 0.002, 0.005, 0.01)
LAMBDAS = (*SMALL_LAMBDAS, *(i / 50 for i in range(1, 50)), *(1 - lamb for lamb in SMALL_LAMBDAS))

Settings = DynamicSettings | CacheSettings
OnPoint = Callable[[Settings, float], object]  # settings and their perplexity


@dataclass(frozen=True)
class Tuning:
    """The result of a search. Records and JSON output contain it as it is."""

    split: str
    tokens: int  # predicted per point
    points: int
    best: Settings
    tried: list[dict[str, float | None]]  # best first: the settings and their perplexity, None if it diverged


def tune_dynamic(
    model: LanguageModel,
    ids: Tensor,  # (T,) validation text
    statistics: list[Tensor],
    start: DynamicSettings,
    on_point: OnPoint | None = None,
    on_progress: OnProgress = no_progress,
) -> Tuning:
    """Search for the settings of dynamic evaluation with the least loss on `ids`."""
    points: dict[DynamicSettings, float] = {}

    def loss(settings: DynamicSettings) -> float:
        # Rounding makes multiplying twice by sqrt(2) and once by 2 the same point.
        rounded: dict[str, Any] = {knob: float(f"{getattr(settings, knob):.6g}") for knob in KNOBS}
        settings = replace(settings, **rounded)
        if settings not in points:
            if len(points) == MOST_POINTS:
                return math.inf
            nll = dynamic_evaluate(model, ids, statistics, settings, on_progress).nll
            points[settings] = nll if math.isfinite(nll) else math.inf
            if on_point:
                on_point(settings, perplexity(nll))
        return points[settings]

    coarse_to_fine(start, loss)
    return _result(points.items(), len(ids) - 1)


def coarse_to_fine(start: DynamicSettings, loss: Callable[[DynamicSettings], float]) -> DynamicSettings:
    """Return a local minimum of `loss`, found by changing one setting at a time (see the module's docstring)."""
    best = start
    least = loss(start)
    for factor in FACTORS:
        moved = True
        while moved:
            moved = False
            for knob, step in itertools.product(KNOBS, (factor, 1 / factor)):
                while True:
                    nearby = replace(best, **{knob: getattr(best, knob) * step})
                    nll = loss(nearby)
                    if nll >= least - LEAST_GAIN:
                        break
                    best = nearby
                    least = nll
                    moved = True
    return best


@torch.no_grad()
@in_eval_mode
def tune_cache(
    model: LanguageModel,
    ids: Tensor,  # (T,) validation text
    start: CacheSettings,
    on_progress: OnProgress = no_progress,
) -> Tuning:
    """Search for the settings of the cache with the least loss on `ids`. Keeps T x H numbers in memory."""
    tokens = len(ids) - 1
    blocks = list(read_blocks(model, ids, on_progress=on_progress))
    lambdas = sorted({*LAMBDAS, start.lamb})
    points: list[tuple[CacheSettings, float]] = []
    losses: dict[Place, float] = {}  # the least loss at each place of the grid
    seen: set[tuple[int, float]] = set()

    def unseen(places: list[Place]) -> dict[Place, tuple[int, float]]:
        """Return window and theta at each place, without pairs that were returned before."""
        new = {}
        for place in places:
            window = max(1, round(start.window * 2 ** place[0]))
            theta = float(f"{start.theta * 2 ** place[1]:.6g}")
            key = (min(window, tokens), theta)  # windows longer than the text are all equal
            if key not in seen:
                seen.add(key)
                new[place] = window, theta
        return new

    places = GRID
    least = math.inf
    while new := unseen(places):
        p_model, p_caches = cache_probabilities(_with_progress(blocks, on_progress), list(new.values()))
        for (place, (window, theta)), p_cache in zip(new.items(), p_caches, strict=True):
            scored = [
                (CacheSettings(window, theta, lamb), mixed_losses(p_model, p_cache, lamb).mean().item())
                for lamb in lambdas
            ]
            losses[place] = min(nll for _, nll in scored)
            points += scored
        best = min(losses, key=losses.__getitem__)
        if losses[best] > least - LEAST_GAIN:
            break
        least = losses[best]
        places = [(best[0] + window, best[1] + theta) for window, theta in NEIGHBOURS]
    return _result(points, tokens)


def _with_progress(blocks: list[Block], on_progress: OnProgress) -> Iterator[Block]:
    total = sum(len(block.targets) for block in blocks)
    done = 0
    for block in blocks:
        yield block
        done += len(block.targets)
        on_progress(done, total)


def _result(points: Iterable[tuple[Settings, float]], tokens: int) -> Tuning:
    ordered = sorted(points, key=lambda point: point[1])
    tried = []
    for settings, nll in ordered:
        ppl = perplexity(nll)
        tried.append({**asdict(settings), "perplexity": ppl if math.isfinite(ppl) else None})
    return Tuning("valid", tokens, len(tried), ordered[0][0], tried)
