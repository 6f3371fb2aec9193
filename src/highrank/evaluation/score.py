"""Scores: perplexity and bits per character, and how they are shown.

This module does not import torch, so that listing runs is fast.
"""

import math

from highrank.data.catalog import Level


def perplexity(nll: float) -> float:
    """Return the perplexity of a mean loss in nats; infinity if the loss is NaN or its exponential overflows."""
    return math.exp(nll) if nll < 700 else math.inf


def bits_per_character(ppl: float) -> float:
    """Return the mean loss in bits, which is nll / ln 2, from the perplexity exp(nll) of a model of characters."""
    return math.log2(ppl)


def format_perplexity(ppl: float, digits: int = 2) -> str:
    """Format a perplexity for display: 58.08, or 5.18e+21 for a model that diverged."""
    return f"{ppl:.{digits}f}" if ppl < 1e6 else f"{ppl:.3g}"


def format_score(ppl: float, level: Level, *, unit: bool = True) -> str:
    """Format the perplexity of a model of words, 58.08, or the bits per character of one of characters, 1.494 bpc."""
    if level == "char":
        return f"{bits_per_character(ppl):.3f}{' bpc' * unit}"
    return format_perplexity(ppl)
