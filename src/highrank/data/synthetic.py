"""Languages we know completely: a finite set of contexts, each with its true next-word distribution (section 2)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class FiniteLanguage:
    """N contexts, M words and P*(word | context); contexts are equally likely."""

    log_p: Tensor  # (N, M) float64: the paper's matrix A

    @property
    def entropy(self) -> float:
        """Mean entropy in nats of the next word: the loss that no model can beat."""
        return -(self.log_p.exp() * self.log_p).sum(dim=1).mean().item()

    def kl(self, log_q: Tensor) -> float:
        """Mean KL(P* || Q) over contexts, in nats, for a model's (N, M) log-probabilities."""
        return (self.log_p.exp() * (self.log_p - log_q)).sum(dim=1).mean().item()


def gaussian_language(n_contexts: int, n_words: int, scale: float, generator: torch.Generator) -> FiniteLanguage:
    """Independent Gaussian logits for every context and word.

    Every context has its own opinion of every word and nothing is shared, so A has full rank M, and no model is
    favoured by the way the language was made.
    """
    logits = scale * torch.randn(n_contexts, n_words, generator=generator, dtype=torch.float64)
    return FiniteLanguage(torch.log_softmax(logits, dim=-1))


def low_rank_language(
    n_contexts: int, n_words: int, rank: int, scale: float, generator: torch.Generator, unigram: bool = False
) -> FiniteLanguage:
    """A language whose matrix A = log P* has the given rank, 2 <= rank <= min(N, M).

    Logits are a random matrix of rank - 1, each with variance scale^2. Normalising subtracts logsumexp from each row,
    which is no linear function of the logits, so the vector of ones joins the row space and A has one rank more. With
    `unigram` (rank >= 3), one of the rank - 1 directions is the same for every context, as word frequencies are: an
    output bias can say that one alone.
    """
    if not 2 + unigram <= rank <= min(n_contexts, n_words):
        raise ValueError(f"rank must be between {2 + unigram} and min(n_contexts, n_words), got {rank}")
    h = torch.randn(n_contexts, rank - 1, generator=generator, dtype=torch.float64)
    w = torch.randn(n_words, rank - 1, generator=generator, dtype=torch.float64)
    if unigram:
        h[:, 0] = 1
    return FiniteLanguage(torch.log_softmax(scale / math.sqrt(rank - 1) * h @ w.T, dim=-1))
