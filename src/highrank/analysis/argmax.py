"""Find the tokens that a softmax can never make the single most likely one, whatever the hidden state.

Token i can win if some h gives it a larger logit than every other token:

    (w_i - w_j) . h + b_i - b_j > 0    for all j != i

Without a bias, the tokens that can win are the corners of the convex hull of the rows w: a token inside the hull is
always beaten by one around it (Demeter et al. 2020, Grivas et al. 2022). A bias is one more coordinate, for which h is
fixed at 1. It can only add winners: a large multiple of an h that wins without the bias wins with it too.

1. One matrix product tries h = w_i - mean(w) for every token, which proves that almost all can win. A second one tries
   C^-1 (w_i - mean(w)) for the others, with the covariance C of the rows: it helps rare words, whose rows are short.
2. A linear program decides each token that is left: it maximises the smallest margin over h in a box and a scale
   s >= 0 of the bias. Few of the V - 1 inequalities matter, so each is added once it is violated.

An h that wins is checked in float64 against every token. That none exists is known up to the solver's tolerance.

Shapes: W (V, D), b (V,), h (D,).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from highrank.errors import MissingPackageError
from highrank.progress import OnStage, no_stages

BLOCK_ELEMENTS = 2**26  # of one block of the matrix product: 512 MiB in float64
FIRST_RIVALS = 64  # tokens in the first linear program
ROUND_OFF = 1e-12  # margins are compared with it; rows are scaled to entries of at most 1
NO_MARGIN = 1e-6  # the best margin below which no h wins; HiGHS keeps inequalities to within 1e-7


@dataclass(frozen=True)
class Unargmaxable:
    """The tokens that never have the single largest logit, by id."""

    tokens: list[int]
    identical: int  # how many of them share row and bias with another token, and so tie with it at best
    programs: int  # how many tokens needed a linear program


@torch.no_grad()
def find_unargmaxable(weight: Tensor, bias: Tensor | None = None, on_stage: OnStage = no_stages) -> Unargmaxable:
    """Find all tokens that no h in R^D makes the single most likely one."""
    linprog = _import_linprog()
    weight = weight.double()
    weight = weight / weight.abs().max()  # neither scale changes which tokens can win
    rows = weight
    if bias is not None and bias.any():
        rows = torch.cat([weight, bias.double()[:, None] / bias.abs().max()], dim=1)  # (V, D + 1)
    centred = weight - weight.mean(0)
    uncertain = losers(torch.arange(len(weight), device=weight.device), centred, weight, on_stage)
    whitened = centred[uncertain] @ torch.linalg.pinv(centred.T @ centred, hermitian=True)
    uncertain = losers(uncertain, whitened, weight, on_stage)
    # A row that occurs twice cannot win alone. All its copies are uncertain, so no others need to be compared.
    _, group, size = torch.unique(rows[uncertain], dim=0, return_inverse=True, return_counts=True)
    copied = size[group] > 1
    never = uncertain[copied].tolist()
    open_cases = uncertain[~copied].tolist()
    for done, token in enumerate(open_cases):
        on_stage("linear programs", done, len(open_cases))
        if not can_win(token, rows, weight.shape[1], linprog):
            never.append(token)
    return Unargmaxable(sorted(never), int(copied.sum()), len(open_cases))


def losers(tokens: Tensor, directions: Tensor, weight: Tensor, on_stage: OnStage = no_stages) -> Tensor:
    """Return those of `tokens` that do not have the largest product with their row of `directions`."""
    wins = torch.zeros_like(tokens, dtype=torch.bool)
    block = max(1, BLOCK_ELEMENTS // len(weight))
    for start in range(0, len(tokens), block):
        rows = slice(start, start + block)
        products = directions[rows] @ weight.T  # (t, V)
        own = products.gather(1, tokens[rows, None])
        best_other = products.scatter_(1, tokens[rows, None], -torch.inf).amax(1, keepdim=True)
        wins[rows] = (own - best_other > ROUND_OFF * own.abs())[:, 0]  # large products have large round-off
        on_stage("one direction per token", min(start + block, len(tokens)), len(tokens))
    return tokens[~wins]


def can_win(token: int, rows: Tensor, dim: int, linprog: Any) -> bool:
    """Decide whether an h gives the token the largest product; columns of `rows` beyond `dim` are the bias."""
    h = rows[token] - rows.mean(0)
    h[dim:].clamp_(min=0)  # the scale of the bias
    rivals = np.empty(0, dtype=np.int64)
    best = np.inf
    while True:
        margins = rows[token] @ h - rows @ h
        margins[token] = torch.inf
        if margins.min() > ROUND_OFF:
            return True
        if best < NO_MARGIN:
            return False
        closest = margins.topk(min(max(FIRST_RIVALS, len(rivals)), len(rows) - 1), largest=False)
        violated = closest.indices[closest.values <= best].cpu().numpy()
        rivals = np.union1d(rivals, violated)
        h, best = _widest_margin(token, rivals, rows, dim, linprog)


def _widest_margin(token: int, rivals: np.ndarray, rows: Tensor, dim: int, linprog: Any) -> tuple[Tensor, float]:
    """Maximise the smallest margin m of a token over some rivals; return h, with the scale of the bias, and m."""
    columns = rows.shape[1]
    bounds = [(-1, 1)] * dim + [(0, 1)] * (columns - dim) + [(None, None)]  # h, s, m
    differences = (rows[token] - rows[torch.from_numpy(rivals).to(rows.device)]).cpu().numpy()
    constraints = np.hstack([-differences, np.ones((len(rivals), 1))])  # m - differences . (h, s) <= 0
    objective = np.zeros(columns + 1)
    objective[-1] = -1
    solution = linprog(objective, A_ub=constraints, b_ub=np.zeros(len(rivals)), bounds=bounds, method="highs")
    h = torch.from_numpy(solution.x[:-1]).to(rows)
    h[dim:].clamp_(min=0)  # the solver keeps bounds up to its tolerance only
    return h, solution.x[-1]


def _import_linprog() -> Any:
    try:
        from scipy.optimize import linprog
    except ImportError:
        raise MissingPackageError("SciPy", "doctor") from None
    return linprog
