"""The bench on which heads meet a finite language: log-probabilities, the two optimisers, and what is measured.

`quickstart` fits the toolkit's heads here; `highrank theory` fits models whose pi and h are free for every context.
That is the paper's universal approximator (section 2.1): nothing limits such a model but how it turns h into words.

Shapes: N contexts, M words, K components, D embedding size; h (N, K, D), prior (N, K), w (M, D), b (M,).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from highrank.analysis.rank import press_tolerance
from highrank.data.synthetic import FiniteLanguage

Kind = Literal["softmax", "moc", "mos"]
COMPUTED = 8  # entries made by logsumexp and sums carry a few units of round-off before the SVD adds its own
HISTORY, GRADIENT_ENOUGH = 10, 1e-12  # a longer memory finds the same in twice the time


@dataclass(frozen=True)
class Fit:
    name: str
    embed_dim: int
    parameters: int
    kl: float  # nats
    perplexity: float
    rank: int
    rank_bound: int | None  # what theory allows; None: no bound below min(N, M)
    curve: list[tuple[int, float]]  # step, KL
    singular_values: list[float]


def rank(singular_values: Tensor, shape: tuple[int, ...], size: float | None = None) -> int:
    """How many singular values rise above round-off: that of the SVD, after Press et al., and of the matrix's entries.

    `size` is the largest singular value of the matrix that this one was computed from, where there was one.
    """
    tolerance = press_tolerance(size or singular_values.max().item(), *shape)
    return int((singular_values > COMPUTED * tolerance).sum())


def measure(
    language: FiniteLanguage,
    log_q: Tensor,
    *,
    name: str,
    embed_dim: int,
    parameters: int,
    rank_bound: int | None,
    curve: Sequence[tuple[int, float]] = (),
) -> Fit:
    """How far a model's (N, M) log-probabilities, from a float64 pass, are from the truth, and their rank."""
    singular_values = torch.linalg.svdvals(log_q)
    kl = language.kl(log_q)
    return Fit(
        name=name,
        embed_dim=embed_dim,
        parameters=parameters,
        kl=kl,
        perplexity=float(torch.tensor(language.entropy + kl).exp()),
        rank=rank(singular_values, log_q.shape),
        rank_bound=rank_bound,
        curve=list(curve),
        singular_values=singular_values.tolist(),
    )


@dataclass(frozen=True)
class Model:
    """A head over free contexts. A softmax has K = 1 and ignores the prior."""

    kind: Kind
    h: Tensor  # (N, K, D)
    prior: Tensor  # (N, K), before its softmax over K
    w: Tensor  # (M, D)
    b: Tensor | None  # (M,)

    @property
    def tensors(self) -> list[Tensor]:
        named = [self.h, self.prior, self.w, self.b]
        return [x for x in named if x is not None and not (x is self.prior and self.kind == "softmax")]

    def log_prob(self) -> Tensor:
        """(N, M): Softmax and MoC take one softmax of one context vector, MoS mixes K softmaxes."""
        if self.kind == "mos":
            log_p = torch.log_softmax(self._logits(self.h), dim=-1)  # (N, K, M)
            return torch.logsumexp(torch.log_softmax(self.prior, dim=-1).unsqueeze(-1) + log_p, dim=1)
        return torch.log_softmax(self._logits(self.context()), dim=-1)

    def context(self) -> Tensor:
        """The one context vector that a Softmax has and a MoC collapses to: sum_k pi_k h_k, (N, D)."""
        if self.kind == "softmax":
            return self.h[:, 0]
        return (torch.softmax(self.prior, dim=-1).unsqueeze(1) @ self.h).squeeze(1)

    def _logits(self, h: Tensor) -> Tensor:
        logits = h @ self.w.T
        return logits if self.b is None else logits + self.b

    def widened(self, embed_dim: int, generator: torch.Generator) -> "Model":
        """The same distribution with a larger D: h gets zeros, w small numbers, so that both can learn."""
        more = embed_dim - self.w.shape[1]
        extra = 0.1 * torch.randn(len(self.w), more, generator=generator, dtype=self.w.dtype)
        zeros = self.h.new_zeros(*self.h.shape[:2], more)
        return replace(self, h=torch.cat([self.h, zeros], dim=-1), w=torch.cat([self.w, extra], dim=-1))

    def mixed(self, kind: Kind, n_components: int) -> "Model":
        """A Softmax as a mixture of K equal components: the same distribution."""
        prior = self.h.new_zeros(len(self.h), n_components)
        return replace(self, kind=kind, h=self.h.expand(-1, n_components, -1), prior=prior)


def random_model(
    kind: Kind, shape: tuple[int, int], n_components: int, embed_dim: int, bias: bool, generator: torch.Generator
) -> Model:
    """Context vectors of size one, small embeddings; `shape` is (N, M)."""
    n, m = shape
    k = 1 if kind == "softmax" else n_components

    def normal(*sizes: int, scale: float) -> Tensor:
        return scale * torch.randn(*sizes, generator=generator, dtype=torch.float64)

    b = torch.zeros(m, dtype=torch.float64) if bias else None
    return Model(kind, normal(n, k, embed_dim, scale=1), normal(n, k, scale=0.1), normal(m, embed_dim, scale=0.4), b)


def fit_adam(
    log_prob: Callable[[], Tensor],
    parameters: Sequence[Tensor],
    language: FiniteLanguage,
    steps: int,
    lr: float,
    on_step: Callable[[int], object],
) -> list[tuple[int, float]]:
    """Full-batch Adam with a cosine schedule; the curve of KL over steps."""
    optimizer = torch.optim.Adam(parameters, lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    p = language.log_p.exp().to(parameters[0].dtype)
    curve: list[tuple[int, float]] = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = -(p * log_prob()).sum(dim=1).mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 20 == 0:
            curve.append((step, loss.item() - language.entropy))
            on_step(step)
    on_step(steps)
    return curve


def fit_lbfgs(
    start: Model, language: FiniteLanguage, evaluations: int, on_evaluation: Callable[[], object] = lambda: None
) -> Model:
    """Full-batch L-BFGS in float64 on KL itself, until the gradient vanishes or the evaluations are spent."""
    b = None if start.b is None else start.b.clone().requires_grad_()
    h, prior, w = (
        x.clone(memory_format=torch.contiguous_format).requires_grad_() for x in (start.h, start.prior, start.w)
    )
    model = Model(start.kind, h, prior, w, b)
    optimizer = torch.optim.LBFGS(
        model.tensors,
        max_iter=evaluations,
        max_eval=evaluations,
        history_size=HISTORY,
        line_search_fn="strong_wolfe",
        tolerance_grad=GRADIENT_ENOUGH,
        tolerance_change=0,
    )
    log_p = language.log_p
    p = log_p.exp()

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (p * (log_p - model.log_prob())).sum(dim=1).mean()
        loss.backward()
        on_evaluation()
        return loss

    optimizer.step(closure)
    return Model(start.kind, h.detach(), prior.detach(), w.detach(), None if b is None else b.detach())
