"""Attainable KL over D: the best Softmax, MoC and MoS that several starts of L-BFGS find, beside what theory says.

What an optimiser finds is an upper bound on the attainable KL, never the attainable itself. For Softmax and MoC a
proven lower bound stands beside it, and where theory has an exact model, that one is written down and measured too.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from highrank.analysis.finite_language.bounds import mos_by_groups, ranks, softmax_by_svd, softmax_floor
from highrank.analysis.finite_language.laboratory import Fit, Kind, Model, fit_lbfgs, measure, random_model
from highrank.data.synthetic import FiniteLanguage

KINDS: tuple[Kind, ...] = ("softmax", "moc", "mos")
NAMES: dict[Kind, str] = {"softmax": "Softmax", "moc": "MoC", "mos": "MoS"}
JITTER = 0.02


@dataclass(frozen=True)
class Effort:
    """How hard the optimiser tries: random starts beside the informed ones, and evaluations of KL for each start."""

    random_starts: int
    evaluations: dict[Kind, int]


FULL = Effort(2, {"softmax": 300, "moc": 300, "mos": 600})
QUICK = Effort(1, {"softmax": 100, "moc": 100, "mos": 200})


@dataclass(frozen=True)
class Point:
    """One head at one D."""

    kind: Kind
    fit: Fit  # the best that the optimiser found
    model: Model
    floor: float | None  # no model of this kind can go below it; None: theory gives no bound
    constructed: Fit | None  # a model that theory writes down, where it is exact

    @property
    def attainable(self) -> float:
        """The best upper bound at hand."""
        return self.fit.kl if self.constructed is None else min(self.fit.kl, self.constructed.kl)


def sweep(
    language: FiniteLanguage,
    dims: list[int],
    n_components: int,
    bias: bool,
    seed: int,
    effort: Effort,
    on_progress: Callable[[int, Kind, float], object],
) -> list[Point]:
    """All heads at every D, smallest first; `on_progress` hears D, the head and the share of the work that is done."""
    generator = torch.Generator().manual_seed(seed)
    enough = ranks(language).enough(bias)
    shape = (len(language.log_p), language.log_p.shape[1])
    dims = sorted(set(dims))
    total = len(dims) * sum(effort.evaluations.values())
    done = 0
    points: list[Point] = []
    last: dict[Kind, Model] = {}
    for d in dims:
        by_svd = softmax_by_svd(language, d, bias)
        for kind in KINDS:
            # Where the formula is exact the optimiser is left to find its own way: the two are shown side by side.
            informed = last["softmax"] if kind == "mos" else by_svd if d < enough else None
            starts = [random_model(kind, shape, n_components, d, bias, generator) for _ in range(effort.random_starts)]
            starts += [last[kind].widened(d, generator)] if kind in last else []
            if informed is not None:
                starts.append(informed if kind == "softmax" else informed.mixed(kind, n_components))
            share, before = effort.evaluations[kind], done

            def tell(part: float, d: int = d, kind: Kind = kind, share: int = share, before: int = before) -> None:
                on_progress(d, kind, (before + part * share) / total)

            last[kind] = _best(starts, language, effort.evaluations[kind], generator, tell)
            done += share
            exact = mos_by_groups(language, n_components, d) if kind == "mos" else by_svd if d >= enough else None
            if kind == "moc" and exact is not None:
                exact = exact.mixed("moc", n_components)
            points.append(
                Point(
                    kind=kind,
                    fit=_measured(language, last[kind], n_components),
                    model=last[kind],
                    floor=None if kind == "mos" else softmax_floor(language, d, bias),
                    constructed=None if exact is None else _measured(language, exact, n_components),
                )
            )
    return points


def _best(
    starts: list[Model],
    language: FiniteLanguage,
    evaluations: int,
    generator: torch.Generator,
    on_progress: Callable[[float], object],
) -> Model:
    """The lowest KL among the starts themselves and what L-BFGS makes of each."""
    best, lowest = starts[0], math.inf
    done, limit, total = 0, 0, len(starts) * evaluations

    def count() -> None:
        nonlocal done
        done = min(done + 1, limit)  # a line search begun is finished, even over the budget
        on_progress(done / total)

    for i, start in enumerate(starts):
        done, limit = i * evaluations, (i + 1) * evaluations
        for model in (start, fit_lbfgs(_jittered(start, generator), language, evaluations, count)):
            kl = language.kl(model.log_prob())
            if kl < lowest:  # never true of a NaN
                best, lowest = model, kl
    on_progress(1.0)
    return best


def _jittered(model: Model, generator: torch.Generator) -> Model:
    """Equal components have equal gradients and would stay equal for ever."""
    if model.h.shape[1] == 1:
        return model
    return replace(model, h=model.h + JITTER * torch.randn(model.h.shape, generator=generator, dtype=model.h.dtype))


def _measured(language: FiniteLanguage, model: Model, n_components: int) -> Fit:
    d = model.w.shape[1]
    name = NAMES[model.kind] + ("" if model.kind == "softmax" else f"-{n_components}")
    bound = d + 1 + (model.b is not None)
    return measure(
        language,
        model.log_prob(),
        name=name,
        embed_dim=d,
        parameters=sum(x.numel() for x in model.tensors),
        rank_bound=bound if model.kind != "mos" and bound < min(language.log_p.shape) else None,
    )
