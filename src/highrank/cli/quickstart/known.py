"""A language we know: fit each head to a finite language whose log-probability matrix A has full rank M.

Every context has a free vector, so the family of functions is as expressive as can be (the paper's universal
approximator); what limits a model is its head alone. With D < rank(A) - 1 the corollary of section 2.1 says that no
softmax can fit, and section 2.5 that no MoC can; a softmax with D >= rank(A) can, and is fitted as the control.
`highrank theory` goes further with the same laboratory.
"""

from collections.abc import Callable

import torch
from torch import nn

from highrank.analysis.finite_language.laboratory import Fit, fit_adam, measure
from highrank.data.synthetic import FiniteLanguage, gaussian_language
from highrank.heads import MoCHead, MoSHead, SoftmaxHead

N_CONTEXTS, N_WORDS, SCALE = 256, 64, 1.5
EMBED_DIM, N_COMPONENTS, CONTEXT_DIM = 8, 8, 32
STEPS, LR = 900, 0.02
Head = SoftmaxHead | MoCHead | MoSHead


def fit_known_language(seed: int, on_step: Callable[[str, int, int], object]) -> tuple[FiniteLanguage, list[Fit]]:
    language = gaussian_language(N_CONTEXTS, N_WORDS, SCALE, torch.Generator().manual_seed(seed))
    torch.manual_seed(seed)
    d, k, wide = EMBED_DIM, N_COMPONENTS, CONTEXT_DIM
    heads: list[tuple[str, int, Head, int]] = [
        (f"Softmax, D={d}", d, SoftmaxHead(d, N_WORDS), d),
        (f"MoC-{k}, D={d}", wide, MoCHead(wide, d, N_WORDS, k), d),
        (f"MoS-{k}, D={d}", wide, MoSHead(wide, d, N_WORDS, k), d),
        (f"Softmax, D={N_WORDS} (control)", N_WORDS, SoftmaxHead(N_WORDS, N_WORDS), N_WORDS),
    ]
    return language, [_fit(name, in_features, head, dim, language, on_step) for name, in_features, head, dim in heads]


def _fit(
    name: str,
    in_features: int,
    head: Head,
    embed_dim: int,
    language: FiniteLanguage,
    on_step: Callable[[str, int, int], object],
) -> Fit:
    g = nn.Parameter(torch.randn(N_CONTEXTS, in_features))
    parameters = [g, *head.parameters()]
    curve = fit_adam(
        lambda: head.log_prob(g),
        parameters,
        language,
        STEPS,
        LR,
        lambda step: on_step(name, step, STEPS),
    )
    # The rank is taken from a float64 forward pass: float32 round-off alone looks like full rank.
    with torch.no_grad():
        log_q = head.double().log_prob(g.double())
    bounded = isinstance(head, SoftmaxHead | MoCHead) and embed_dim + 2 < N_WORDS
    return measure(
        language,
        log_q,
        name=name,
        embed_dim=embed_dim,
        parameters=sum(x.numel() for x in parameters),
        rank_bound=embed_dim + 2 if bounded else None,
        curve=[*curve, (STEPS, language.kl(log_q))],
    )
