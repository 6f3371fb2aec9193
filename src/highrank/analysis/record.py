"""The analysis record: the format of analysis.json and of results/analysis/*.json.

`summarize` and `summarize_softmax` turn the result for one model, which holds tensors, into its part of the record.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from highrank.analysis.kld import Kld
from highrank.analysis.matrix import Analysis
from highrank.analysis.rank import effective_rank, numerical_rank
from highrank.analysis.softmax import SoftmaxAnalysis

SPECTRUM_POINTS = 400  # stored of a long spectrum


@dataclass(frozen=True)
class Spectrum:
    """Singular values by their index, which counts from 1; a long spectrum is thinned out."""

    values: list[float]
    index: list[int]


@dataclass(frozen=True)
class OutputMatrix:
    """The output matrix W of a softmax model from transformers."""

    rank: int
    effective_rank: float
    spectrum: Spectrum


@dataclass(frozen=True)
class Varying:
    """The part of log P that varies with context: log P minus its mean over contexts."""

    effective_rank: float
    directions_90: int  # that hold 90 % of the variance
    directions_99: int
    spectrum: Spectrum


@dataclass(frozen=True, kw_only=True)
class ModelAnalysis:
    """The analysis of one model."""

    name: str
    run: str | None = None  # folder, None for a model from transformers
    recipe: str | None = None
    head: str  # softmax, moc, mos; other: a model from transformers that does not end in a plain softmax
    n_components: int
    embed_dim: int
    epochs: int | None = None
    valid_ppl: float | None = None  # of the whole split, from the run's summary
    test_ppl: float | None = None
    rank_bound: int
    rank: int  # a lower bound if projected
    effective_rank: float | None  # None if projected
    columns: int
    projected: int | None  # columns of the random projection
    tolerance: float
    spectrum: Spectrum
    kld: Kld | None
    perplexity: float | None  # of the analysed tokens
    seconds: dict[str, float]
    peak_bytes: int | None
    # Of a model from transformers:
    weights_dtype: str | None = None  # as stored
    precision: str | None = None  # of the forward pass
    context: int | None = None  # tokens per window
    output_matrix: OutputMatrix | None = None  # of a plain softmax
    varying: Varying | None = None

    @property
    def round_off(self) -> float | None:
        """The tolerance relative to the largest singular value; None if projected."""
        return None if self.projected else self.tolerance / self.spectrum.values[0]


@dataclass(frozen=True, kw_only=True)
class AnalysisRecord:
    """The analyses of several models on one text."""

    kind: Literal["analysis"] = "analysis"
    corpus: str
    corpus_fingerprint: str | None = None  # None for a text file
    split: str | None  # None for a text file
    tokens: int
    vocabulary: int
    seed: int
    models: list[ModelAnalysis]
    provenance: dict[str, Any]


def summarize(result: Analysis, *, name: str, head: str, n_components: int, embed_dim: int) -> ModelAnalysis:
    """Return one model's part of the record. A Softmax or MoC with an output bias has rank D + 2 at most."""
    full = min(result.tokens, result.vocabulary)
    return ModelAnalysis(
        name=name,
        head=head,
        n_components=n_components,
        embed_dim=embed_dim,
        rank_bound=min(full, embed_dim + 2) if head in ("softmax", "moc") else full,
        rank=result.rank,
        effective_rank=result.effective_rank,
        columns=result.projected or result.vocabulary,
        projected=result.projected,
        tolerance=result.tolerance,
        spectrum=thin_spectrum(result.singular_values),
        kld=result.kld,
        perplexity=result.perplexity,
        seconds=result.seconds,
        peak_bytes=result.peak_bytes,
    )


def summarize_softmax(result: SoftmaxAnalysis, name: str) -> ModelAnalysis:
    """Return the record of a softmax model, including its output matrix and how much of it the model uses."""
    analysis = result.analysis
    summary = summarize(analysis, name=name, head="softmax", n_components=1, embed_dim=result.embed_dim)
    output_matrix = OutputMatrix(
        rank=numerical_rank(result.output_values, analysis.vocabulary, result.embed_dim),
        effective_rank=effective_rank(result.output_values),
        spectrum=thin_spectrum(result.output_values),
    )
    varying = Varying(
        effective_rank=effective_rank(result.varying_values),
        directions_90=result.directions(0.9),
        directions_99=result.directions(0.99),
        spectrum=thin_spectrum(result.varying_values),
    )
    return replace(summary, rank_bound=result.rank_bound, output_matrix=output_matrix, varying=varying)


def thin_spectrum(values: Tensor) -> Spectrum:
    """Keep at most `SPECTRUM_POINTS` singular values, densest at both ends."""
    n = len(values)
    index = torch.arange(1, n + 1)
    if n > SPECTRUM_POINTS:
        steps = SPECTRUM_POINTS // 3
        even = torch.linspace(1, n, steps)
        growing = torch.logspace(0, math.log10(n), steps)
        index = torch.cat([even, growing, n + 1 - growing]).round().long().clamp(1, n).unique()
    return Spectrum(values[index - 1].tolist(), index.tolist())
