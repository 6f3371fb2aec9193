"""Models fitted to a finite language: their log-probabilities, how to fit them, and the measurement of a fit.

`highrank theory` fits models whose pi and h are free for every context, the paper's universal approximator (section
2.1): only the head limits them. `fit_head` does the same for a `highrank.heads` module (quickstart).

Shapes: N contexts, M words, K components, D embedding size; h (N, K, D), prior (N, K), w (M, D), b (M,).
"""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from highrank.analysis.rank import numerical_rank
from highrank.data.synthetic import FiniteLanguage
from highrank.heads import MoCHead, SoftmaxHead
from highrank.heads.head import Head
from highrank.progress import OnProgress, no_progress

Kind = Literal["softmax", "moc", "mos"]
NAMES: dict[Kind, str] = {"softmax": "Softmax", "moc": "MoC", "mos": "MoS"}
COMPUTED = 8  # times the round-off of an SVD counts as zero: logsumexp and sums leave some in the entries before it
CURVE_EVERY_STEPS = 20


@dataclass(frozen=True, kw_only=True)
class Fit:
    name: str
    embed_dim: int
    parameters: int
    kl: float  # nats
    rank: int
    rank_bound: int | None  # None: no bound below min(N, M)
    curve: list[tuple[int, float]] = field(default_factory=list)  # step, KL
    singular_values: list[float]


def measure(language: FiniteLanguage, log_q: Tensor, **about: Any) -> Fit:
    """Measure KL and rank of a model's (N, M) log-probabilities from a float64 pass; `about` are the other fields."""
    values = torch.linalg.svdvals(log_q)
    rank = numerical_rank(values, log_q.shape, COMPUTED * values[0].item())
    kl = language.kl(log_q)
    return Fit(kl=kl, rank=rank, singular_values=values.tolist(), **about)


@dataclass(frozen=True)
class Model:
    """A head with free parameters for every context. A softmax has K = 1 and ignores the prior."""

    kind: Kind
    h: Tensor  # (N, K, D)
    prior: Tensor  # (N, K), before its softmax over K
    w: Tensor  # (M, D)
    b: Tensor | None  # (M,)

    @property
    def tensors(self) -> list[Tensor]:
        """The parameters that the distribution depends on."""
        prior = [] if self.kind == "softmax" else [self.prior]
        return [self.h, *prior, self.w, *([] if self.b is None else [self.b])]

    def log_prob(self) -> Tensor:
        """Return (N, M): Softmax and MoC take one softmax of one context vector, MoS mixes K softmaxes."""
        if self.kind == "mos":
            log_p = torch.log_softmax(self._logits(self.h), dim=-1)  # (N, K, M)
            return torch.logsumexp(torch.log_softmax(self.prior, dim=-1).unsqueeze(-1) + log_p, dim=1)
        return torch.log_softmax(self._logits(self.context()), dim=-1)

    def context(self) -> Tensor:
        """Return the one context vector of a Softmax or MoC: sum_k pi_k h_k, (N, D)."""
        if self.kind == "softmax":
            return self.h[:, 0]
        return (torch.softmax(self.prior, dim=-1).unsqueeze(1) @ self.h).squeeze(1)

    def moc_log_prob(self) -> Tensor:
        """Compute a MoC by its definition, as the softmax of a mixture of K rows of logits."""
        pi = torch.softmax(self.prior, dim=-1).unsqueeze(-1)
        return torch.log_softmax((pi * self._logits(self.h)).sum(dim=1), dim=-1)

    def _logits(self, h: Tensor) -> Tensor:
        logits = h @ self.w.T
        return logits if self.b is None else logits + self.b

    def widen(self, embed_dim: int, generator: torch.Generator) -> "Model":
        """Return the same distribution with a larger D: h is padded with zeros, w with small random numbers."""
        more = embed_dim - self.w.shape[1]
        extra = 0.1 * torch.randn(len(self.w), more, generator=generator, dtype=self.w.dtype)
        zeros = self.h.new_zeros(*self.h.shape[:2], more)
        return replace(self, h=torch.cat([self.h, zeros], dim=-1), w=torch.cat([self.w, extra], dim=-1))

    def as_mixture(self, kind: Kind, n_components: int) -> "Model":
        """Return a Softmax as a mixture of K equal components: the same distribution."""
        if kind == "softmax":
            return self
        prior = self.h.new_zeros(len(self.h), n_components)
        return replace(self, kind=kind, h=self.h.expand(-1, n_components, -1), prior=prior)

    def measure(self, language: FiniteLanguage) -> Fit:
        _, k, d = self.h.shape
        bound = d + 1 + (self.b is not None)
        return measure(
            language,
            self.log_prob(),
            name=NAMES[self.kind] + ("" if self.kind == "softmax" else f"-{k}"),
            embed_dim=d,
            parameters=sum(x.numel() for x in self.tensors),
            rank_bound=bound if self.kind != "mos" and bound < min(language.log_p.shape) else None,
        )


def random_model(
    kind: Kind, language: FiniteLanguage, n_components: int, embed_dim: int, bias: bool, generator: torch.Generator
) -> Model:
    """Return a model with context vectors of size one and small embeddings."""
    n, m = language.log_p.shape
    k = 1 if kind == "softmax" else n_components

    def normal(*sizes: int, scale: float) -> Tensor:
        return scale * torch.randn(*sizes, generator=generator, dtype=torch.float64)

    b = torch.zeros(m, dtype=torch.float64) if bias else None
    return Model(kind, normal(n, k, embed_dim, scale=1), normal(n, k, scale=0.1), normal(m, embed_dim, scale=0.4), b)


def fit_lbfgs(start: Model, language: FiniteLanguage, evaluations: int) -> Model:
    """Minimise KL by full-batch L-BFGS in float64, until the gradient vanishes or the evaluations are used up."""
    h, prior, w = (
        x.clone(memory_format=torch.contiguous_format).requires_grad_() for x in (start.h, start.prior, start.w)
    )
    b = None if start.b is None else start.b.clone().requires_grad_()
    model = Model(start.kind, h, prior, w, b)
    optimizer = torch.optim.LBFGS(
        model.tensors,
        max_iter=evaluations,
        max_eval=evaluations,
        history_size=10,  # a longer history finds the same in twice the time
        line_search_fn="strong_wolfe",
        tolerance_grad=1e-12,
        tolerance_change=0,
    )
    log_p = language.log_p
    p = log_p.exp()

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (p * (log_p - model.log_prob())).sum(dim=1).mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    return Model(start.kind, h.detach(), prior.detach(), w.detach(), None if b is None else b.detach())


def fit_head(
    name: str,
    head: Head,
    language: FiniteLanguage,
    *,
    steps: int = 900,
    lr: float = 0.02,
    on_progress: OnProgress = no_progress,
) -> Fit:
    """Fit a head and one free hidden state g per context by full-batch Adam with a cosine schedule, and measure it."""
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
