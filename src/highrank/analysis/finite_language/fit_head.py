"""Fit a head to a finite language, together with one free hidden state g per context."""

import torch

from highrank.analysis.finite_language.laboratory import Fit, measure
from highrank.data.synthetic import FiniteLanguage
from highrank.heads import MoCHead, SoftmaxHead
from highrank.heads.head import Head
from highrank.progress import OnProgress, no_progress

CURVE_EVERY_STEPS = 20


def fit_head(
    name: str,
    head: Head,
    language: FiniteLanguage,
    *,
    steps: int = 900,
    lr: float = 0.02,
    on_progress: OnProgress = no_progress,
) -> Fit:
    """Minimise KL by full-batch Adam with a cosine schedule, and measure the result."""
    contexts, words = language.log_p.shape
    g = torch.randn(contexts, head.in_features).requires_grad_()
    parameters = [g, *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    p = language.log_p.exp().to(g.dtype)
    curve: list[tuple[int, float]] = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = -(p * head.log_prob(g)).sum(dim=1).mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % CURVE_EVERY_STEPS == 0:
            curve.append((step, loss.item() - language.entropy))
            on_progress(step, steps)
    on_progress(steps, steps)
    with torch.no_grad():  # in float64, because float32 round-off alone looks like full rank
        log_q = head.double().log_prob(g.double())
    embed_dim = head.weight.shape[1]
    bounded = isinstance(head, SoftmaxHead | MoCHead) and embed_dim + 2 < words
    return measure(
        language,
        log_q,
        name=name,
        embed_dim=embed_dim,
        parameters=sum(x.numel() for x in parameters),
        rank_bound=embed_dim + 2 if bounded else None,
        curve=[*curve, (steps, language.kl(log_q))],
    )
