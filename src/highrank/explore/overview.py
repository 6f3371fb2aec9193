"""What is known about a whole model: its training curve, its spectrum, and how it uses its components.

Shapes: n positions, K components.
"""

import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from highrank.analysis.record import Spectrum
from highrank.errors import UserError
from highrank.explore.explorer import Explorer
from highrank.explore.model import Model, RunModel
from highrank.runs.analysis import read_analysis
from highrank.runs.folder import Run, run_corpus

USAGE_TOKENS = 512  # of the validation text: a few seconds on a CPU
SPECIALTY_WORDS = 8  # shown per component


@dataclass(frozen=True)
class Curve:
    epochs: list[int]
    train: list[float]  # perplexity
    valid: list[float]


@dataclass(frozen=True)
class Overview:
    name: str
    facts: dict[str, str]
    n_components: int
    by_word: bool
    curve: Curve | None
    spectrum: Spectrum | None
    rank: int | None


@dataclass(frozen=True)
class ComponentUsage:
    weight: float  # mean of pi_k
    responsibility: float  # mean of r_k
    specialty: list[str]  # the words that it is responsible for far more often than for others


def overview(model: Model, analysis: Path | None) -> Overview:
    """Collect what the folder of a model and an analysis say about it."""
    curve = None
    if isinstance(model, RunModel) and (epochs := Run(model.folder).epochs()):
        curve = Curve([e.epoch for e in epochs], [e.train_ppl for e in epochs], [e.valid_ppl for e in epochs])
    found = [a for a in read_analysis(analysis).models if a.name == Path(model.name).name] if analysis else []
    spectrum = found[0].spectrum if found else None
    rank = found[0].rank if found else None
    return Overview(model.name, model.facts(), model.n_components, model.by_word, curve, spectrum, rank)


def validation_ids(model: Model, data_dir: Path | None) -> list[int]:
    """Return the first tokens of the validation text of a run; none if it is not on this machine."""
    if not isinstance(model, RunModel):
        return []
    try:
        return run_corpus(model.folder, data_dir).ids("valid", USAGE_TOKENS).tolist()
    except UserError:
        return []


def component_usage(explorer: Explorer, ids: list[int]) -> list[ComponentUsage]:
    """Measure how a mixture uses its components on a text of at least one token."""
    weights, scores = explorer.responsibilities(ids)
    usage = [sum(column) / len(ids) for column in zip(*scores, strict=True)]
    by_word: dict[int, list[float]] = defaultdict(lambda: [0.0] * len(usage))
    for i, responsibilities in zip(ids, scores, strict=True):
        by_word[i] = [total + r for total, r in zip(by_word[i], responsibilities, strict=True)]
    components = []
    for k, (weight, mean) in enumerate(zip(weights, usage, strict=True)):

        def surplus(word: int, k: int = k, mean: float = mean) -> float:
            """Weigh how much more of the word component k takes than of all words, by how often it does."""
            totals = by_word[word]
            return totals[k] * math.log(max(totals[k], 1e-9) / (sum(totals) * mean))

        best = sorted(by_word, key=surplus, reverse=True)[:SPECIALTY_WORDS]
        specialty = [explorer.model.words[i] for i in best if surplus(i) > 0]
        components.append(ComponentUsage(weight, mean, specialty))
    return components
