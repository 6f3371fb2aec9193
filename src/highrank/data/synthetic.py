"""Languages we know completely: a finite set of contexts, each with its true next-word distribution (section 2)."""

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
