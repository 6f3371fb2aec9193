"""Expected pairwise KLD (appendix C.1 of the paper): how different a model's next-word distributions are on average.

    E[ KL(P(. | c) || P(. | c')) ]     over pairs of different contexts c, c' of a text

n contexts are sampled without replacement and all n (n - 1) ordered pairs are averaged, each computed exactly, which
gives an unbiased estimate. One product of probabilities and log-probabilities contains every cross term:

    KL_ij = sum_x p_i(x) log p_i(x) - (P L^T)_ij

Pairs share contexts, so treating them as independent would give far too small an error. The standard error is the
jackknife over contexts, with the finite-population correction: it is 0 if every context was sampled.

Shapes: L (n, V) log-probabilities, P = exp(L).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 500  # contexts per matrix product


@dataclass(frozen=True)
class Kld:
    mean: float  # nats
    standard_error: float
    contexts: int

    def __str__(self) -> str:
        error = f" ± {self.standard_error:.3f}" if self.standard_error else ""  # 0: the mean over all contexts
        return f"{self.mean:.3f}{error}"


def sample_contexts(population: int, contexts: int, seed: int) -> Tensor:
    """Return the positions of `contexts` different contexts (or of all there are), in order."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(population, generator=generator)[:contexts].sort().values


def pairwise_kld(log_p: Tensor, population: int | None = None, block: int = BLOCK) -> Kld:
    """Average the KLD over all pairs of the (n, V) rows.

    `population` is the number of contexts that the rows were sampled from; None means infinitely many.
    """
    n = len(log_p)
    if n < 3:
        raise ValueError(f"a standard error needs at least 3 contexts, got {n}")
    as_first = log_p.new_zeros(n)  # per context, the sum of KL over the pairs in which it comes first
    as_second = log_p.new_zeros(n)
    for start in range(0, n, block):
        rows = slice(start, start + block)
        p = log_p[rows].exp()
        kld = (p * log_p[rows]).sum(-1, keepdim=True) - p @ log_p.T  # (block, n)
        as_first[rows] = kld.sum(1)
        as_second += kld.sum(0)
    total = as_first.sum()
    if not math.isfinite(total.item()):
        raise ValueError("the divergence is not finite: a log-probability is -inf or nan")
    without = (total - as_first - as_second) / ((n - 1) * (n - 2))  # the estimate with each context left out
    variance = (n - 1) / n * (without - without.mean()).square().sum()
    if population is not None:
        variance *= 1 - n / population
    return Kld((total / (n * (n - 1))).item(), variance.sqrt().item(), n)
