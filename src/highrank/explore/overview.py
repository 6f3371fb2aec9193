"""What is known about a whole model: its training curve, its spectrum, and how it uses its components.

Shapes: n positions, K components, V vocabulary.
"""

import contextlib
import math
from dataclasses import dataclass
from pathlib import Path

import torch

from highrank.analysis.record import Spectrum
from highrank.errors import UserError
from highrank.explore.explorer import Explorer
from highrank.explore.model import ExplorableModel, RunModel
from highrank.runs.analysis import read_analysis
from highrank.runs.corpora import run_corpus
from highrank.runs.folder import Run

USAGE_TOKENS = 512  # of the validation text: a few seconds on a CPU
SPECIALTY_WORDS = 8  # shown per component


@dataclass(frozen=True)
class PerplexityCurve:
    epochs: list[int]
    train: list[float]  # perplexity
    valid: list[float]


@dataclass(frozen=True)
class Overview:
    name: str
    facts: dict[str, str]
    n_components: int
    by_word: bool
    curve: PerplexityCurve | None
    spectrum: Spectrum | None
    rank: int | None


@dataclass(frozen=True)
class ComponentUsage:
    weight: float  # mean of pi_k
    responsibility: float  # mean of r_k
    specialty: list[str]  # the words that it is responsible for far more often than for others


def overview(model: ExplorableModel, analysis: Path | None) -> Overview:
    """Collect what the folder of a model and an analysis say about it."""
    curve = None
    epochs = Run(model.folder).epochs() if isinstance(model, RunModel) else []
    epochs = [e for e in epochs if math.isfinite(e.valid_ppl) and math.isfinite(e.train_ppl)]
    if epochs:
        curve = PerplexityCurve([e.epoch for e in epochs], [e.train_ppl for e in epochs], [e.valid_ppl for e in epochs])
    found = [a for a in read_analysis(analysis).models if a.name == Path(model.name).name] if analysis else []
    spectrum = found[0].spectrum if found else None
    rank = found[0].rank if found else None
    return Overview(model.name, model.facts(), model.n_components, model.by_word, curve, spectrum, rank)


def validation_ids(model: ExplorableModel, data_dir: Path | None) -> list[int]:
    """Return the first tokens of the validation text of a run; none if it is not on this machine."""
    if isinstance(model, RunModel):
        for folder in (data_dir, None):  # one folder may not hold the corpora of all runs
            with contextlib.suppress(UserError):
                return run_corpus(model.folder, folder).ids("valid", USAGE_TOKENS).tolist()
    return []


def component_usage(explorer: Explorer, ids: list[int]) -> list[ComponentUsage]:
    """Measure how a mixture uses its components on a text of at least one token."""
    weights, responsibilities = explorer.mixture(ids)
    words = explorer.model.words
    mean = responsibilities.mean(0)  # (K,)
    totals = torch.zeros(len(words), len(mean)).index_add_(0, torch.tensor(ids), responsibilities)  # (V, K)
    # How much more of a word a component takes than of all words, weighted by how often it does
    surplus = totals * (totals / (totals.sum(1, keepdim=True) * mean)).log()
    best = surplus.nan_to_num(-torch.inf).topk(min(SPECIALTY_WORDS, len(words)), dim=0)
    usage = []
    for k, weight in enumerate(weights.mean(0).tolist()):
        specialty = [words[i] for i in best.indices[best.values[:, k] > 0, k].tolist()]
        usage.append(ComponentUsage(weight, mean[k].item(), specialty))
    return usage
