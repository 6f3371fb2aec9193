"""One pass over a text, and everything the paper asks of a log-probability matrix: rank, spectrum, pairwise KLD.

    from highrank.analysis import analyze
    result = analyze(log_prob, ids)          # log_prob: (t,) ids -> (t, V) log-probabilities of each next word, float64
    result.rank, result.effective_rank, result.singular_values, result.kld, result.perplexity

A is (T, V): one row after each of the T tokens of `ids`. It is never held whole.
"""

import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from highrank.analysis.kld import Kld, pairwise_kld, sample_contexts
from highrank.analysis.memory import KLD_BLOCK, PeakMemory, check_memory
from highrank.analysis.projection import Projection, top_of_spectrum
from highrank.analysis.rank import RowReducer, effective_rank, press_tolerance, singular_values
from highrank.analysis.rows import LogProb, windows
from highrank.progress import OnStage

WINDOW = 200  # words a call of the model; bounds memory only
CONTEXTS = 5000  # for the pairwise KLD
CONTEXT_BYTES = 2**31  # what they may take, for large vocabularies
SPECTRUM_POINTS = 400  # of a long spectrum, in JSON


@dataclass(frozen=True)
class Analysis:
    tokens: int  # T, rows of A
    vocabulary: int  # V, columns of A
    rank: int  # numerical; a lower bound where projected
    effective_rank: float | None  # None where projected: it needs every singular value
    tolerance: float  # singular values above it count
    projected: int | None  # columns of the random projection, or None for the exact route
    singular_values: Tensor  # largest first: min(T, V) of them; the top that can be seen where projected
    kld: Kld | None  # None for fewer than 3 contexts
    perplexity: float | None  # of ids[1:], read off the same rows; None where the words are not known
    seconds: dict[str, float]  # by stage
    peak_bytes: int | None  # of the GPU, or of this process

    def to_json(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "effective_rank": self.effective_rank,
            "columns": self.projected or self.vocabulary,
            "projected": self.projected,
            "tolerance": self.tolerance,
            "spectrum": spectrum_json(self.singular_values),
            "kld": self.kld._asdict() if self.kld else None,
            "perplexity": self.perplexity,
            "seconds": self.seconds,
            "peak_bytes": self.peak_bytes,
        }


def spectrum_json(values: Tensor) -> dict[str, list[float]]:
    """Singular values by their index from 1; a long spectrum keeps some hundreds, dense at both ends."""
    n = len(values)
    index = torch.arange(1, n + 1)
    if n > SPECTRUM_POINTS:
        steps = SPECTRUM_POINTS // 3
        even, growing = torch.linspace(1, n, steps), torch.logspace(0, math.log10(n), steps)
        index = torch.cat([even, growing, n + 1 - growing]).round().long().clamp(1, n).unique()
    return {"values": values[index - 1].tolist(), "index": index.tolist()}


class Observer:
    """What is read off the rows besides the spectrum: the loss of the words that came, and sampled contexts."""

    def __init__(
        self, tokens: int, ids: Tensor | None, vocabulary: int, contexts: int, seed: int, device: torch.device
    ) -> None:
        self.tokens, self.done = tokens, 0
        self.ids = None if ids is None else ids.to(device)
        self.positions = sample_contexts(tokens, contexts, seed).to(device)
        self.kept = torch.empty(len(self.positions), vocabulary, dtype=torch.float64, device=device)
        self.nll = torch.zeros((), dtype=torch.float64, device=device)

    def see(self, rows: Tensor) -> None:  # (t, V)
        start, self.done = self.done, self.done + len(rows)
        if self.ids is not None:
            targets = self.ids[start + 1 : self.done + 1]  # the last token of all has none
            self.nll -= rows[: len(targets)].gather(1, targets[:, None]).sum()
        first, last = torch.searchsorted(self.positions, torch.tensor([start, self.done], device=rows.device)).tolist()
        self.kept[first:last] = rows[self.positions[first:last] - start]

    def perplexity(self) -> float | None:
        return None if self.ids is None or self.tokens < 2 else (self.nll / (self.tokens - 1)).exp().item()

    def kld(self) -> Kld | None:
        return pairwise_kld(self.kept, self.tokens, KLD_BLOCK) if len(self.kept) >= 3 else None


class Stages:
    """Times the stages of an analysis and tells about them."""

    def __init__(self, device: torch.device, on_progress: OnStage | None) -> None:
        self.device, self.on_progress = device, on_progress or (lambda stage, done, total: None)
        self.seconds: dict[str, float] = {}
        self._began = time.perf_counter()

    def tell(self, stage: str, done: int = 0, total: int | None = None) -> None:
        self.on_progress(stage, done, total)

    def end(self, name: str) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # or the next stage would pay for this one
        now = time.perf_counter()
        self.seconds[name] = now - self._began
        self._began = now


def context_count(tokens: int, vocabulary: int, contexts: int) -> int:
    """As many contexts as asked, as there are, and as fit."""
    return min(contexts, tokens, max(100, CONTEXT_BYTES // (8 * vocabulary)))


@torch.no_grad()
def analyze(
    log_prob: LogProb,
    ids: Tensor,  # (T,)
    *,
    projection: int | None = None,
    contexts: int = CONTEXTS,
    seed: int = 0,
    window: int = WINDOW,
    on_progress: OnStage | None = None,
) -> Analysis:
    """Rank, spectrum, pairwise KLD and perplexity of a model on a text.

    `log_prob` is called with consecutive windows of `ids`, in order, and returns float64 log-probabilities of the word
    after each; it may carry a state from window to window. `projection` is the number of columns of a random
    projection, for vocabularies whose V x V factor does not fit (see `highrank.analysis.projection`).
    """

    def rows(words: Tensor) -> Tensor:
        block = log_prob(words)
        if block.dim() != 2 or len(block) != len(words):
            shape = tuple(block.shape)
            raise ValueError(f"log_prob must map ({len(words)},) ids to ({len(words)}, V) rows, got {shape}")
        return block

    blocks = map(rows, windows(ids, window))
    return analyze_rows(blocks, ids, projection=projection, contexts=contexts, seed=seed, on_progress=on_progress)


@torch.no_grad()
def analyze_rows(
    blocks: Iterator[Tensor],  # (t, V) each, T rows in all
    ids: Tensor,  # (T,)
    *,
    projection: int | None = None,
    contexts: int = CONTEXTS,
    seed: int = 0,
    on_progress: OnStage | None = None,
) -> Analysis:
    """`analyze` for rows that come in blocks of their own making: row i follows ids[i]."""
    if not len(ids):
        raise ValueError("ids are empty: there is nothing to analyse")
    first = next(blocks)  # it tells V and the device
    vocabulary, device = _checked(first), first.device
    contexts = context_count(len(ids), vocabulary, contexts)
    check_memory(len(ids), vocabulary, projection, contexts, len(first), device)

    stages, peak = Stages(device, on_progress), PeakMemory(device)
    observer = Observer(len(ids), ids, vocabulary, contexts, seed, device)
    projector = Projection(vocabulary, projection, seed, device) if projection else None
    reducer = RowReducer()
    for rows in itertools.chain([first], blocks):
        observer.see(rows)
        reducer.add(projector.apply(rows) if projector else rows)
        stages.tell("log-probabilities, reduced by QR", reducer.rows, len(ids))
    factor = reducer.factor()
    stages.end("rows")

    stages.tell(f"singular values of a {factor.shape[0]:,} x {factor.shape[1]:,} matrix")
    values = singular_values(factor).cpu()
    del factor, reducer
    stages.end("svd")

    stages.tell(f"KL divergence of all pairs of {contexts:,} contexts")
    kld = observer.kld()
    stages.end("kld")
    shape = (len(ids), vocabulary)
    tolerance = projector.tolerance(len(ids)) if projector else press_tolerance(values[0].item(), *shape)
    rank = int((values > tolerance).sum())
    return Analysis(
        tokens=len(ids),
        vocabulary=vocabulary,
        rank=rank,
        effective_rank=None if projector else effective_rank(values),
        tolerance=tolerance,
        projected=projection,
        singular_values=top_of_spectrum(values)[:rank] if projector else values,
        kld=kld,
        perplexity=observer.perplexity(),
        seconds=stages.seconds,
        peak_bytes=peak.bytes(),
    )


def _checked(rows: Tensor) -> int:
    if rows.dtype != torch.float64:
        raise TypeError(f"the analysis needs float64 from a float64 forward pass, got {rows.dtype}")
    total = rows[0].exp().sum().item()
    if not abs(total - 1) < 1e-6:
        raise ValueError(f"log_prob must return log-probabilities: the first row's probabilities sum to {total:.6g}")
    return rows.shape[1]
