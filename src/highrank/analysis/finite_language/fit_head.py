"""Fit one of the toolkit's heads to a finite language."""

import torch

from highrank.analysis.finite_language.laboratory import Fit, fit_adam, measure
from highrank.data.synthetic import FiniteLanguage
from highrank.heads import MoSHead
from highrank.heads.head import Head
from highrank.progress import OnProgress, no_progress


def fit_head(
    name: str,
    head: Head,
    language: FiniteLanguage,
    *,
    steps: int = 900,
    lr: float = 0.02,
    on_progress: OnProgress = no_progress,
) -> Fit:
    """Fit a head, together with one free vector g per context, so that only the head limits the model."""
    contexts, words = language.log_p.shape
    embed_dim = head.weight.shape[1]
    g = torch.randn(contexts, head.in_features).requires_grad_()
    parameters = [g, *head.parameters()]
    curve = fit_adam(lambda: head.log_prob(g), parameters, language, steps, lr, lambda step: on_progress(step, steps))
    with torch.no_grad():  # in float64, because float32 round-off alone looks like full rank
        log_q = head.double().log_prob(g.double())
    return measure(
        language,
        log_q,
        name=name,
        embed_dim=embed_dim,
        parameters=sum(x.numel() for x in parameters),
        rank_bound=None if isinstance(head, MoSHead) or embed_dim + 2 >= words else embed_dim + 2,
        curve=[*curve, (steps, language.kl(log_q))],
    )
