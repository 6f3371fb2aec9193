"""Synthetic languages: finite sets of contexts, each with its true next-word distribution (section 2 of the paper)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class FiniteLanguage:
    """N equally likely contexts, M words, and the true distribution P*(word | context)."""

    log_p: Tensor  # (N, M) float64: the paper's matrix A

    @property
    def entropy(self) -> float:
        """Return the mean entropy of the next word, in nats: the lowest loss that any model can reach."""
        return -(self.log_p.exp() * self.log_p).sum(dim=1).mean().item()

    def kl(self, log_q: Tensor) -> float:
        """Return the mean KL(P* || Q) over contexts, in nats, for a model's (N, M) log-probabilities."""
        return (self.log_p.exp() * (self.log_p - log_q)).sum(dim=1).mean().item()


def gaussian_language(n_contexts: int, n_words: int, scale: float, generator: torch.Generator) -> FiniteLanguage:
    """Return a language with independent Gaussian logits for every context and word.

    Contexts share no structure, so A has full rank M, and the construction favours no model.
    """
    logits = scale * torch.randn(n_contexts, n_words, generator=generator, dtype=torch.float64)
    return FiniteLanguage(torch.log_softmax(logits, dim=-1))


def low_rank_language(
    n_contexts: int, n_words: int, rank: int, scale: float, generator: torch.Generator, unigram: bool = False
) -> FiniteLanguage:
    """Return a language whose matrix A = log P* has the given rank, 2 <= rank <= min(N, M).

    Logits are a random matrix of rank - 1, each entry with variance scale^2. Normalising subtracts logsumexp from each
    row, which adds the vector of ones to the row space, so A has one rank more. With `unigram` (rank >= 3), one of the
    rank - 1 directions is the same for every context, like word frequencies: an output bias alone can represent it.
    """
    if not 2 + unigram <= rank <= min(n_contexts, n_words):
        raise ValueError(f"rank must be between {2 + unigram} and min(n_contexts, n_words), got {rank}")
    h = torch.randn(n_contexts, rank - 1, generator=generator, dtype=torch.float64)
    w = torch.randn(n_words, rank - 1, generator=generator, dtype=torch.float64)
    if unigram:
        h[:, 0] = 1
    return FiniteLanguage(torch.log_softmax(scale / math.sqrt(rank - 1) * h @ w.T, dim=-1))
