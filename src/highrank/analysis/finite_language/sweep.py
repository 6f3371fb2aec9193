"""KL over D: the best Softmax, MoC and MoS that several starts of L-BFGS find, beside what theory says.

The KL that an optimiser finds is an upper bound on the attainable KL. For Softmax and MoC there is also a proven lower
bound, and where theory has an exact model, that model is constructed and measured too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from highrank.analysis.finite_language.bounds import mos_by_groups, ranks, softmax_by_svd, softmax_floor
from highrank.analysis.finite_language.laboratory import Fit, Kind, Model, fit_lbfgs, measure, random_model
from highrank.data.synthetic import FiniteLanguage
from highrank.progress import OnProgress, no_progress

NAMES: dict[Kind, str] = {"softmax": "Softmax", "moc": "MoC", "mos": "MoS"}
JITTER = 0.02


@dataclass(frozen=True)
class Effort:
    """How hard the optimiser tries: random starts beside the informed ones, and evaluations of KL per start."""

    random_starts: int
    evaluations: dict[Kind, int]


FULL = Effort(2, {"softmax": 300, "moc": 300, "mos": 600})
QUICK = Effort(1, {"softmax": 100, "moc": 100, "mos": 200})


@dataclass(frozen=True)
class Point:
    """One head at one D."""

    head: Kind
    lower_bound: float | None  # on the KL of this head; None: theory gives no bound
    kl_attainable_at_most: float  # the best known upper bound on the attainable KL
    found: Fit  # by the optimiser
    constructed: Fit | None  # the exact model, where theory has one
    collapse_error: float | None  # of a MoC: how much log Q differs if its K rows of logits are mixed instead


def sweep(
    language: FiniteLanguage,
    dims: Sequence[int],
    n_components: int,
    bias: bool,
    seed: int,
    effort: Effort,
    on_progress: OnProgress = no_progress,
) -> list[Point]:
    """Fit all heads at every D, in increasing order; progress is counted in evaluations of KL per start."""
    generator = torch.Generator().manual_seed(seed)
    enough = ranks(language).enough(bias)
    n, m = language.log_p.shape
    total = len(dims) * sum(effort.evaluations.values())
    done = 0
    points: list[Point] = []
    best: dict[Kind, Model] = {}
    for d in sorted(dims):
        by_svd = softmax_by_svd(language, d, bias)
        for kind in NAMES:
            starts = [random_model(kind, (n, m), n_components, d, bias, generator) for _ in range(effort.random_starts)]
            if kind in best:
                starts.append(best[kind].widened(d, generator))
            if kind == "mos":
                starts.append(best["softmax"].mixed(kind, n_components))
                exact = mos_by_groups(language, n_components, d)
            elif d < enough:
                starts.append(by_svd.mixed(kind, n_components))
                exact = None
            else:  # not a start: the optimiser has to find its own way, for comparison
                exact = by_svd.mixed(kind, n_components)
            best[kind] = _fit_best(starts, language, effort.evaluations[kind], generator)
            floor = None if kind == "mos" else softmax_floor(language, d, bias)
            points.append(_measure_point(language, best[kind], exact, floor))
            done += effort.evaluations[kind]
            on_progress(done, total)
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
    if model.h.shape[1] == 1:
        return model
    return replace(model, h=model.h + JITTER * torch.randn(model.h.shape, generator=generator, dtype=model.h.dtype))


def _measure_point(language: FiniteLanguage, model: Model, exact: Model | None, floor: float | None) -> Point:
    found = _measure_model(language, model)
    constructed = None if exact is None else _measure_model(language, exact)
    collapse_error = None
    if model.kind == "moc":
        collapse_error = (model.log_prob() - model.moc_log_prob()).abs().max().item()
    attainable = found.kl if constructed is None else min(found.kl, constructed.kl)
    return Point(model.kind, floor, attainable, found, constructed, collapse_error)


def _measure_model(language: FiniteLanguage, model: Model) -> Fit:
    _, k, d = model.h.shape
    bound = d + 1 + (model.b is not None)
    return measure(
        language,
        model.log_prob(),
        name=NAMES[model.kind] + ("" if model.kind == "softmax" else f"-{k}"),
        embed_dim=d,
        parameters=sum(x.numel() for x in model.tensors),
        rank_bound=bound if model.kind != "mos" and bound < min(language.log_p.shape) else None,
    )
