"""Search for a proof that a token can win (an h) or that it never wins (a mixture of other rows that equals its own).

Both come from one problem. Let h give the other tokens the probabilities p_j ~ exp(x_j . h), and minimise

    log sum_j exp(x_j . h) - t . h        with the gradient    g = sum_j p_j x_j - t

The target t = (1 + DEPTH) x_i lies a little beyond x_i, as seen from the mean of the rows. If t is outside the convex
hull of the other rows, h grows without bound and soon wins. If t is inside, g goes to 0: the mixture of the rows with
the shares p approaches t. The rest is corrected exactly. The rows are whitened, so sum_j x_j = 0 and
sum_j (x_j . g) x_j = V g, and therefore the shares

    p_j + (DEPTH - x_j . g) / V

add up to 1 + DEPTH and give the mixture (1 + DEPTH) x_i. This is a proof as soon as none of them is negative.

Whitening also makes the problem well conditioned: nonlinear conjugate gradients need 2 to 50 steps, each with two
products with x, for many tokens at once. Tokens on the boundary of the hull, or within DEPTH of it, are left. Only rows
with large x_j . h matter to them, and non-negative least squares finds the mixture of these that is nearest to x_i.

The bias, if there is one, is the last column: its h may not be negative, and a mixture may exceed x_i in it.

Shapes: x (V, n), one row per token; h and g (t, n), one row per token that is searched for.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

DEPTH = 1e-3  # relative distance to the boundary of the hull that the search can prove
RIDGE = 1e-12  # added to the covariance, relative to its trace, because the rows may lie in a subspace
LINE_SEARCH_STEPS = 3


def whiten(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return x with mean 0 and covariance 1, and the lower triangular factor A with rows - mean = x A^T.

    Because A is triangular, the bias stays the last column: h_rows = A^-T h has the sign of h there.
    """
    centred = rows - rows.mean(0)
    covariance = centred.T @ centred / len(rows)
    covariance.diagonal().add_(RIDGE * covariance.trace())
    factor = torch.linalg.cholesky(covariance)
    return torch.linalg.solve_triangular(factor, centred.T, upper=False).T.contiguous(), factor


def search(tokens: Tensor, h: Tensor, x: Tensor, has_bias: bool, steps: int) -> tuple[Tensor, Tensor]:
    """Take steps from h (t, n); return the last h, and the shares (t, V) of a mixture of the other rows.

    Whether h wins or the mixture equals the token's row is for the caller to check.
    """
    own = x[tokens]
    target = (1 + DEPTH) * own
    h = h.clone()
    logits = (h @ x.T).scatter_(1, tokens[:, None], -torch.inf)  # the token is not part of the mixture
    direction = torch.zeros_like(h)
    slope = torch.zeros_like(logits)  # x . direction
    previous = torch.ones_like(h)  # gradient; the first one is not used, as the first direction is 0
    for _ in range(steps):
        p = logits.softmax(1)
        gradient = p @ x - target
        if has_bias:
            no_excess = gradient[:, -1].clamp(max=0)
            gradient[:, -1] = torch.where(h[:, -1] == 0, no_excess, gradient[:, -1])  # h stays at its bound
        uphill = gradient @ x.T
        shares = (p + (DEPTH - uphill) / len(x)).scatter_(1, tokens[:, None], 0)
        settled = (shares.amin(1) >= 0) | ((h * own).sum(1) > logits.amax(1))
        if settled.all():
            break
        beta = (gradient * (gradient - previous)).sum(1, keepdim=True) / previous.square().sum(1, keepdim=True)
        beta = beta.clamp(min=0)  # Polak and Ribière, restarted where negative
        direction = beta * direction - gradient
        slope = beta * slope - uphill
        previous = gradient
        longest = (1 + 3 * h.norm(dim=1, keepdim=True)) / direction.norm(dim=1, keepdim=True)
        step = line_search(logits, slope, (direction * target).sum(1, keepdim=True), longest)
        step.masked_fill_(settled[:, None], 0)  # keep what was found
        h += step * direction
        logits += step * slope
        if has_bias:
            below = h[:, -1:].clamp(max=0)  # go back to the bound, and restart there
            h[:, -1:] -= below
            logits -= below * x[:, -1]
            direction *= below == 0
            slope *= below == 0
    return h, shares / shares.sum(1, keepdim=True)


def line_search(logits: Tensor, slope: Tensor, target_slope: Tensor, longest: Tensor) -> Tensor:
    """Return the step (t, 1) that nearly minimises log sum exp(logits + step * slope) - step * target_slope.

    It is at most `longest`, and found by Newton's method, with bisection where that leaves the interval of the minimum.
    """
    low = torch.zeros_like(longest)
    high = longest
    step = low
    for _ in range(LINE_SEARCH_STEPS):
        p = (logits + step * slope).softmax(1)
        mean = (p * slope).sum(1, keepdim=True)
        variance = (p * (slope - mean).square()).sum(1, keepdim=True)
        derivative = mean - target_slope
        low = torch.where(derivative < 0, step, low)
        high = torch.where(derivative > 0, step, high)
        newton = step - derivative / variance
        step = torch.where((low < newton) & (newton < high), newton, (low + high) / 2)
    return step


def nearest_mixture(token: int, rivals: Tensor, x: Tensor, has_bias: bool, nnls: Any) -> tuple[Tensor, Tensor]:
    """Return the shares (m,) of the mixture of the rivals nearest to the token, and the h (n,) that beats the rivals.

    Where the mixture equals the token's row, h is 0 up to round-off.
    """
    columns = (x[rivals] - x[token]).T.cpu().numpy()  # (n, m)
    scale = np.linalg.norm(columns, axis=0).mean()
    columns = np.vstack([columns, np.full(len(rivals), scale)])  # the shares add up to 1
    if has_bias:
        excess = np.zeros((len(columns), 1))  # how much the mixture exceeds x_i in the bias
        excess[-2] = -scale
        columns = np.hstack([columns, excess])
    wanted = np.zeros(len(columns))
    wanted[-1] = scale
    shares, _ = nnls(columns, wanted)
    h = -(columns @ shares)[:-1]
    return torch.from_numpy(shares[: len(rivals)]).to(x), torch.from_numpy(h).to(x)
