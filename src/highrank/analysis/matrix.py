"""Rank, spectrum, pairwise KLD and perplexity of a model on a text, in one pass.

    from highrank.analysis import analyze
    result = analyze(log_prob, ids)          # log_prob: (t,) ids -> (t, V) log-probabilities of each next word, float64
    result.rank, result.effective_rank, result.spectrum.values, result.kld, result.perplexity

The matrix A is (T, V): one row of log-probabilities after each of the T tokens of `ids`. It is never stored whole.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, TypedDict, Unpack

import torch
from torch import Tensor

from highrank import memory
from highrank.analysis.kld import pairwise_kld, sample_contexts
from highrank.analysis.rank import (
    MAX_ELEMENTS,
    RowReducer,
    effective_rank,
    numerical_rank,
    press_tolerance,
    singular_values,
    stack_rows,
)
from highrank.analysis.record import Analysis, full_spectrum
from highrank.errors import UserError
from highrank.models.language_model import LanguageModel
from highrank.progress import OnStage, no_stages

WINDOW = 200  # tokens per call of the model; affects memory only
CONTEXTS = 5000  # sampled for the pairwise KLD
CONTEXT_BYTES = 2**31  # upper limit of their memory, for large vocabularies
LARGE_ELEMENTS = 2**29  # log-probabilities read by default for vocabularies whose V x V factor is too large: 4 GiB

LogProb = Callable[[Tensor], Tensor]  # (t,) ids -> (t, V) log-probabilities of each next word


def carrying_state(model: LanguageModel) -> LogProb:
    """Return a function from ids to log-probabilities that carries the recurrent state from one call to the next."""
    state = model.initial_state(1)

    def log_prob(ids: Tensor) -> Tensor:
        nonlocal state
        log_p, state = model.log_prob(ids[:, None], state)
        return log_p[:, 0]

    return log_prob


class Options(TypedDict, total=False):
    """Keyword arguments of `analyze` that its callers pass on."""

    contexts: int  # sampled for the pairwise KLD
    seed: int  # of the sampled contexts


def analyze(
    log_prob: LogProb,
    ids: Tensor,  # (T,)
    *,
    window: int = WINDOW,
    on_stage: OnStage = no_stages,
    **options: Unpack[Options],
) -> Analysis:
    """Compute rank, spectrum, pairwise KLD and perplexity of a model on a text.

    `log_prob` is called with consecutive windows of `ids` and returns the float64 log-probabilities of the word after
    each token; it may carry a state between calls.
    """
    return analyze_rows(map(log_prob, ids.split(window)), ids, on_stage=on_stage, **options)


@torch.no_grad()
def analyze_rows(
    blocks: Iterator[Tensor],  # (t, V) each, T rows in total
    ids: Tensor,  # (T,)
    *,
    contexts: int = CONTEXTS,
    seed: int = 0,
    on_stage: OnStage = no_stages,
) -> Analysis:
    """Do the same as `analyze` for rows that are given in blocks of any size: row i follows ids[i]."""
    tokens = len(ids)
    if not tokens:
        raise ValueError("ids are empty: there is nothing to analyse")
    first = next(blocks)
    _check_log_probabilities(first)
    vocabulary = first.shape[1]
    contexts = context_count(tokens, vocabulary, contexts)
    check_memory(tokens, vocabulary, contexts, len(first), first.device)

    observer = RowObserver(tokens, ids, vocabulary, contexts, seed, first.device)
    reducer = RowReducer()
    for rows in itertools.chain([first], blocks):
        observer.add(rows)
        reducer.add(rows)
        on_stage("log-probabilities, reduced by QR", reducer.rows, tokens)
    if reducer.rows != tokens:
        raise ValueError(f"expected one row of log-probabilities per token, {tokens} in total, got {reducer.rows}")
    factor = reducer.factor()
    observer.end_stage("rows")

    on_stage(f"singular values of a {factor.shape[0]:,} x {factor.shape[1]:,} matrix", 0, None)
    values = singular_values(factor).cpu()
    del factor, reducer
    return observer.result(values, on_stage, rank_bound=min(tokens, vocabulary))


class RowObserver:
    """Collect what the analysis needs besides the spectrum: the loss, the sampled contexts, and the time per stage."""

    def __init__(
        self, tokens: int, ids: Tensor | None, vocabulary: int, contexts: int, seed: int, device: torch.device
    ) -> None:
        self.tokens = tokens
        self.device = device
        self.ids = None if ids is None else ids.to(device)
        self.positions = sample_contexts(tokens, contexts, seed).to(device)
        self.sampled = torch.empty(len(self.positions), vocabulary, dtype=torch.float64, device=device)
        self.nll = torch.zeros((), dtype=torch.float64, device=device)
        self.seconds: dict[str, float] = {}
        self._seen = 0
        self._began = time.perf_counter()
        memory.reset_peak(device)

    def add(self, rows: Tensor) -> None:  # (t, V)
        start = self._seen
        self._seen += len(rows)
        if self.ids is not None:
            targets = self.ids[start + 1 : self._seen + 1]  # one fewer at the end of the text
            self.nll -= rows[: len(targets)].gather(1, targets[:, None]).sum()
        span = torch.tensor([start, self._seen], device=rows.device)
        first, last = torch.searchsorted(self.positions, span).tolist()
        self.sampled[first:last] = rows[self.positions[first:last] - start]

    def result(self, values: Tensor, on_stage: OnStage, **about: Any) -> Analysis:
        """Compute the pairwise KLD and return the analysis; `about` are the fields that this class does not know."""
        self.end_stage("svd")
        on_stage("pairwise KL divergence", 0, None)
        kld = pairwise_kld(self.sampled, self.tokens) if len(self.sampled) >= 3 else None
        self.end_stage("kld")
        shape = self.tokens, self.sampled.shape[1]
        perplexity = None if self.ids is None or self.tokens < 2 else (self.nll / (self.tokens - 1)).exp().item()
        return Analysis(
            rank=numerical_rank(values, shape),
            effective_rank=effective_rank(values),
            tolerance=press_tolerance(values[0].item(), *shape),
            spectrum=full_spectrum(values),
            kld=kld,
            perplexity=perplexity,
            seconds=self.seconds,
            peak_bytes=memory.peak_bytes(self.device),
            **about,
        )

    def end_stage(self, stage: str) -> None:
        """Store the seconds since the previous stage ended."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # otherwise the next stage is charged for this one
        now = time.perf_counter()
        self.seconds[stage] = now - self._began
        self._began = now


def context_count(tokens: int, vocabulary: int, contexts: int) -> int:
    """Limit the number of sampled contexts to those that exist and fit into `CONTEXT_BYTES`."""
    return min(contexts, tokens, max(100, CONTEXT_BYTES // (8 * vocabulary)))


def default_rows(vocabulary: int) -> int | None:
    """Return how many rows to analyse by default if a V x V factor has too many elements for LAPACK; None: all."""
    return LARGE_ELEMENTS // vocabulary if vocabulary**2 > MAX_ELEMENTS else None


def needed_bytes(tokens: int, vocabulary: int, contexts: int, window: int) -> int:
    """Predict the peak memory of an analysis, without the model."""
    rows = min(tokens, stack_rows(vocabulary))
    stack = rows * vocabulary  # what QR factors
    factors = stack + min(rows, vocabulary) ** 2  # a copy of the stack, and R
    prediction = 6 * window * vocabulary  # temporaries of a mixture's log-probabilities
    elements = stack + max(factors, prediction) + contexts * vocabulary
    return int(8.8 * elements)  # a tenth for LAPACK's workspace and the allocator's cache


def check_memory(tokens: int, vocabulary: int, contexts: int, window: int, device: torch.device) -> None:
    """Raise a UserError if the analysis will not fit into memory."""
    task = f"the analysis of {tokens:,} x {vocabulary:,} log-probabilities"
    fix = "use fewer tokens or fewer contexts"
    if min(tokens, vocabulary) * vocabulary > MAX_ELEMENTS:
        raise UserError(f"{task} needs a matrix of more than 2^31 elements, which LAPACK cannot factor: {fix}.")
    memory.require_bytes(needed_bytes(tokens, vocabulary, contexts, window), device, task, fix)


def _check_log_probabilities(rows: Tensor) -> None:
    if rows.dim() != 2 or rows.dtype != torch.float64:
        raise TypeError(f"log_prob must return (t, V) from a float64 pass, got {rows.dtype} {tuple(rows.shape)}")
    total = rows[0].exp().sum().item()
    if math.isnan(total):
        raise UserError("the log-probabilities are not finite: the weights are damaged, or the training diverged.")
    if not abs(total - 1) < 1e-6:
        raise ValueError(f"log_prob must return log-probabilities: the first row's probabilities sum to {total:.6g}")
