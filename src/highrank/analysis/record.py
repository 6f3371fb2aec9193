"""The results of an analysis, and the format of analysis.json and of analysis/*.json in a folder of records."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from highrank.analysis.kld import Kld

SPECTRUM_POINTS = 400  # stored of a long spectrum


@dataclass(frozen=True)
class Spectrum:
    """Singular values, largest first, by their index, which counts from 1; a record has at most `SPECTRUM_POINTS`."""

    values: list[float]
    index: list[int]

    def count_above(self, threshold: float) -> int:
        """Return how many singular values exceed a positive threshold, interpolated in a thinned-out spectrum."""
        logs = np.log(np.maximum(self.values, np.finfo(float).tiny))
        return int(np.interp(-math.log(threshold), -logs, self.index, left=0))


@dataclass(frozen=True)
class Varying:
    """The part of log P that varies with context: log P minus its mean over contexts."""

    effective_rank: float
    directions_90: int  # that hold 90 % of the variance
    directions_99: int
    spectrum: Spectrum


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """The analysis of one model on a text."""

    # Left empty by `analyze` and `analyze_softmax`, which do not know the model:
    name: str = ""
    run: str | None = None  # folder, None for a model from transformers
    recipe: str | None = None
    head: str = "other"  # softmax, moc, mos; other: a model from transformers that does not end in a plain softmax
    n_components: int = 1
    embed_dim: int = 0
    epochs: int | None = None
    valid_ppl: float | None = None  # of the whole split, from the run's summary
    test_ppl: float | None = None
    # Measured:
    rank_bound: int
    rank: int
    effective_rank: float
    tolerance: float  # singular values above it count towards the rank
    spectrum: Spectrum  # all min(T, V) singular values
    kld: Kld | None  # None for fewer than 3 contexts
    perplexity: float | None  # of the analysed tokens but the first; None if the ids are unknown or fewer than 2
    seconds: dict[str, float]  # per stage
    peak_bytes: int | None  # of the GPU, or of this process
    # Of a model from transformers:
    weights_dtype: str | None = None  # as stored
    precision: str | None = None  # of the forward pass
    context: int | None = None  # tokens per window
    # Of `analyze_softmax`:
    varying: Varying | None = None

    @property
    def round_off(self) -> float:
        """The tolerance relative to the largest singular value."""
        return self.tolerance / self.spectrum.values[0]

    @property
    def float32_rank(self) -> int:
        """The rank of a mixture with float32's eps in the tolerance, as the paper may have counted; interpolated."""
        eps_ratio = torch.finfo(torch.float32).eps / torch.finfo(torch.float64).eps
        return self.spectrum.count_above(self.tolerance * eps_ratio)


@dataclass(frozen=True, kw_only=True)
class AnalysisRecord:
    """The analyses of several models on one text."""

    kind: Literal["analysis"] = "analysis"
    corpus: str
    corpus_fingerprint: str
    split: str
    tokens: int
    vocabulary: int
    seed: int
    models: list[Analysis]
    provenance: dict[str, Any]


def full_spectrum(values: Tensor) -> Spectrum:
    return Spectrum(values.tolist(), list(range(1, len(values) + 1)))


def thin_spectrum(spectrum: Spectrum) -> Spectrum:
    """Keep at most `SPECTRUM_POINTS` singular values, densest at both ends."""
    n = len(spectrum.values)
    if n <= SPECTRUM_POINTS:
        return spectrum
    steps = SPECTRUM_POINTS // 3
    even = torch.linspace(1, n, steps)
    growing = torch.logspace(0, math.log10(n), steps)
    index = torch.cat([even, growing, n + 1 - growing]).round().long().clamp(1, n).unique().tolist()
    return Spectrum([spectrum.values[i - 1] for i in index], index)
