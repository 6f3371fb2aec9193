"""Measure how much of the loss gradient passes through the output layer.

The loss -log softmax(z)_y of a token y has the gradient d = p - e_y with respect to the V logits z = W h + b. Of it,
the hidden state receives W^T d: the part of d outside the D-dimensional column space of W is lost. With an orthonormal
basis Q of that space, the share that survives is

    |Q^T d| / |d|           for a random direction, about sqrt(D / V)

In a mixture, softmax k receives r_k (p_k - e_y), with its responsibility r_k for y. Its share pools all components:

    share^2 = sum_k r_k^2 |Q^T (p_k - e_y)|^2 / sum_k r_k^2 |p_k - e_y|^2

This does not grow with K, but the directions in which the mixture can move do. When its context vectors change by dh_k,
its log-probabilities change by sum_k r_k(x) (w_x . dh_k + dc_k), with r_k(x) = pi_k p_k(x) / p(x) and one number dc_k
for prior and normaliser. So they can follow their own gradient p - e_y in up to K (D + 1) directions: the columns
r_k(x) (w_x, 1), which depend on the context. `reach` is the share of p - e_y in their space; for a single softmax, that
of [W 1]. It counts directions, not how strongly a step moves along them.

Shapes: W (V, D), log pi (t, K), h (t, K, D), targets (t,).
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from highrank.analysis.output_layer import column_basis, quantiles

ITERATIONS = 50  # of conjugate gradients
ROUND_OFF = 1e-12  # of a gradient relative to the first


@dataclass(frozen=True)
class Shares:
    """A share per token: its mean and quantiles, and the value for a random direction."""

    tokens: int
    mean: float
    quantiles: list[float]  # 0 %, 5 %, ..., 100 %
    random: float


def summarize_shares(shares: Tensor, random: float) -> Shares:
    """Summarise the shares of many tokens."""
    return Shares(len(shares), shares.mean().item(), quantiles(shares), random)


def random_share(directions: int, vocabulary: int) -> float:
    """Return the root mean square share of a random direction in a space of `directions` dimensions."""
    return math.sqrt(min(directions, vocabulary) / vocabulary)


@torch.no_grad()
def gradient_share(
    basis: Tensor,  # (V, rank of W), orthonormal columns that span those of W
    weight: Tensor,
    bias: Tensor | None,
    log_pi: Tensor,
    h: Tensor,
    targets: Tensor,
) -> Tensor:
    """Return, for each of t tokens, the share of the logits' gradient that reaches the context vectors, (t,)."""
    survived = torch.zeros_like(log_pi[:, 0])
    total = torch.zeros_like(survived)
    log_p = _log_p(weight, bias, h)  # (t, K, V)
    at_target = log_p.gather(2, targets[:, None, None].expand(-1, h.shape[1], 1))[..., 0]  # (t, K)
    responsibility = torch.softmax(log_pi + at_target, dim=1)
    for k in range(h.shape[1]):
        d = _minus_one_hot(log_p[:, k].exp(), targets)  # (t, V)
        weight_k = responsibility[:, k].square()
        survived += weight_k * (d @ basis).square().sum(1)
        total += weight_k * d.square().sum(1)
    return (survived / total).sqrt()


@torch.no_grad()
def reach(weight: Tensor, bias: Tensor | None, log_pi: Tensor, h: Tensor, targets: Tensor) -> Tensor:
    """Return, for each of t tokens, the share of p - e_y that the log-probabilities can follow, (t,).

    Solves the least-squares problem min |J c - d| for all tokens at once by conjugate gradients (CGLS), which needs
    products with J only. The share grows with each iteration, so the result is a lower bound.
    """
    joint = log_pi[..., None] + _log_p(weight, bias, h)  # (t, K, V)
    log_p = joint.logsumexp(1)
    d = _minus_one_hot(log_p.exp(), targets)  # (t, V)
    r = (joint - log_p[:, None]).exp()
    # Neither this scale nor an orthonormal basis changes the space, but both save iterations.
    r /= r.norm(dim=2, keepdim=True)
    columns = column_basis(torch.cat([weight, torch.ones_like(weight[:, :1])], dim=1))

    residual = d.clone()
    gradient = (r * residual[:, None]) @ columns  # J^T residual, (t, K, D + 1)
    direction = gradient
    squares = gradient.square().sum((1, 2))  # (t,)
    round_off = ROUND_OFF**2 * squares
    for _ in range(ITERATIONS):
        change = (r * (direction @ columns.T)).sum(1)  # J direction, (t, V)
        converged = squares <= round_off  # further steps would only follow round-off
        step = torch.where(converged, 0, squares / change.square().sum(1))
        residual -= step[:, None] * change
        gradient = (r * residual[:, None]) @ columns
        squares, previous = gradient.square().sum((1, 2)), squares
        direction = gradient + torch.where(converged, 0, squares / previous)[:, None, None] * direction
    return (1 - residual.square().sum(1) / d.square().sum(1)).clamp(min=0).sqrt()


def _log_p(weight: Tensor, bias: Tensor | None, h: Tensor) -> Tensor:
    return torch.log_softmax(F.linear(h, weight, bias), dim=-1)


def _minus_one_hot(p: Tensor, targets: Tensor) -> Tensor:
    """Return p - e_y for each row of p (t, V)."""
    rows = torch.arange(len(p), device=p.device)
    p[rows, targets] -= 1
    return p
