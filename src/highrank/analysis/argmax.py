"""Find the tokens that a softmax can never make the single most likely one, whatever the hidden state.

Token i can win if some h gives it a larger logit than every other token:

    (w_i - w_j) . h + b_i - b_j > 0    for all j != i

Without a bias, the tokens that can win are the corners of the convex hull of the rows w: a token inside the hull is
always beaten by one around it (Demeter et al. 2020, Grivas et al. 2022). A bias is one more coordinate with a factor
s >= 0 (s = 0 also counts: a large multiple of an h that wins without the bias wins with it too). Exactly one of two
things exists (Farkas' lemma), and each is a proof:

    can win   h and s >= 0 with w_i . h + s b_i > w_j . h + s b_j for all j != i
    never     shares a_j >= 0 of the others, adding up to 1, with sum_j a_j w_j = w_i and sum_j a_j b_j >= b_i

1. One matrix product tries h = w_i - mean(w) for every token, which proves that almost all can win. A second one tries
   C^-1 (w_i - mean(w)) for the others, with the covariance C of the rows: it helps rare words, whose rows are short.
2. A search by gradients finds a proof of one kind or the other for almost every token that is left (hull.py).
3. Non-negative least squares decides the remaining ones, which are near the boundary of the hull, one by one.

Tokens that training never saw can have nearly the same row. There may be thousands of them, if the vocabulary was made
for other text. They tie in practice, even if their last digits prove that one of them can win. If many tokens are left
after step 1, these near copies are reported separately, and the other steps see one row of each group.

Every proof is checked in float64 with all rows, or with one row of each group. A mixture counts as equal to w_i up to
RESIDUAL.

Shapes: W (V, D), b (V,); rows (V, n) is W, with b as last column if there is one, and h (t, n) goes with it.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from highrank.analysis.hull import nearest_mixture, search, whiten
from highrank.errors import MissingPackageError
from highrank.progress import OnStage, no_stages

PRODUCT_ELEMENTS = 2**26  # of one block of a matrix product: 512 MiB in float64
SEARCH_STEPS = (2, 8, 30, 60)  # tokens with a proof leave the search after 2, 10, 40 and 100 steps
MANY = 1000  # if more tokens are left after step 1, near copies are separated from them
NEAR = 1e-3  # distance of near copies, relative to the norm of a row
FIRST_RIVALS = 64  # tokens in the first least-squares problem
SYSTEM_ELEMENTS = 2**21  # of the largest one, which takes seconds
ROUND_OFF = 1e-12  # of a margin, relative to the logit
RESIDUAL = 1e-9  # of a mixture; rows are scaled to entries of at most 1


@dataclass(frozen=True)
class Unargmaxable:
    """The tokens that never have the single largest logit, by id."""

    tokens: list[int]
    identical: int  # how many of them share row and bias with another token, and so tie with it at best
    near_copies: list[int]  # further tokens, whose row is nearly that of another one: they tie with it in practice
    undecided: list[int]  # further tokens, for which no proof was found


@dataclass(frozen=True)
class Layer:
    """An output layer in float64."""

    rows: Tensor  # (V, n)
    x: Tensor  # (V, n) the rows, whitened
    factor: Tensor  # (n, n) rows - mean = x factor^T
    has_bias: bool


@torch.no_grad()
def find_unargmaxable(weight: Tensor, bias: Tensor | None = None, on_stage: OnStage = no_stages) -> Unargmaxable:
    """Find all tokens that no h in R^D makes the single most likely one."""
    nnls = _import_nnls()
    layer = prepare_layer(weight, bias)
    tokens = torch.arange(len(weight), device=weight.device)
    tokens = tokens[~wins(tokens, layer.rows - layer.rows.mean(0), layer, on_stage)]
    tokens = tokens[~wins(tokens, unwhiten(layer.x[tokens], layer), layer, on_stage)]
    # A row that occurs twice cannot win alone. All its copies are uncertain, so no others need to be compared.
    _, group, size = torch.unique(layer.rows[tokens], dim=0, return_inverse=True, return_counts=True)
    copied = size[group] > 1
    never = tokens[copied].tolist()
    tokens = tokens[~copied]
    kept = torch.arange(len(weight), device=weight.device)
    near_copies = tokens[:0]
    if len(tokens) > MANY:
        near_copies, repeated = find_near_copies(tokens, layer.rows, on_stage)
        tokens = tokens[~torch.isin(tokens, near_copies)]
        kept = kept[~torch.isin(kept, repeated)]
        layer = whiten_layer(layer.rows[kept], layer.has_bias)
    tokens = torch.searchsorted(kept, tokens)  # from here on, a token is a row of `layer`
    h = torch.zeros_like(layer.x[tokens])
    for steps in SEARCH_STEPS:
        h, won, lost = settle(tokens, h, layer, steps, on_stage)
        never += kept[tokens[lost]].tolist()
        left = ~won & ~lost
        tokens = tokens[left]
        h = h[left]
    undecided = []
    for index, token in enumerate(tokens.tolist()):
        on_stage("tokens near the boundary", index, len(tokens))
        verdict = can_win(token, h[index], layer, nnls)
        if verdict is None:
            undecided.append(int(kept[token]))
        elif not verdict:
            never.append(int(kept[token]))
    return Unargmaxable(sorted(never), int(copied.sum()), near_copies.tolist(), undecided)


def prepare_layer(weight: Tensor, bias: Tensor | None) -> Layer:
    """Join W and b, each scaled to entries of at most 1, which does not change which tokens can win."""
    rows = weight.double() / weight.abs().max()
    has_bias = bias is not None and bool(bias.any())
    if bias is not None and has_bias:
        rows = torch.cat([rows, bias.double()[:, None] / bias.abs().max()], dim=1)
    return whiten_layer(rows, has_bias)


def whiten_layer(rows: Tensor, has_bias: bool) -> Layer:
    x, factor = whiten(rows)
    return Layer(rows, x, factor, has_bias)


def unwhiten(h: Tensor, layer: Layer) -> Tensor:
    """Return the h whose products with the rows equal those of `h` with x, up to a constant per token."""
    return torch.linalg.solve_triangular(layer.factor.T, h.T, upper=True).T


def wins(tokens: Tensor, h: Tensor, layer: Layer, on_stage: OnStage = no_stages) -> Tensor:
    """Return, for each token, whether its row of h gives it the largest product; a negative s is raised to 0."""
    if layer.has_bias:
        h = torch.cat([h[:, :-1], h[:, -1:].clamp(min=0)], dim=1)
    result = torch.zeros_like(tokens, dtype=torch.bool)
    block = max(1, PRODUCT_ELEMENTS // len(layer.rows))
    for start in range(0, len(tokens), block):
        part = slice(start, start + block)
        products = h[part] @ layer.rows.T  # (t, V)
        own = products.gather(1, tokens[part, None])
        best_other = products.scatter_(1, tokens[part, None], -torch.inf).amax(1, keepdim=True)
        result[part] = (own - best_other > ROUND_OFF * own.abs())[:, 0]  # large products have large round-off
        on_stage("one direction per token", min(start + block, len(tokens)), len(tokens))
    return result


def find_near_copies(tokens: Tensor, rows: Tensor, on_stage: OnStage = no_stages) -> tuple[Tensor, Tensor]:
    """Return the tokens whose row is nearly that of another one, and all of them but the first of each group."""
    squares = rows.square().sum(1)
    block = max(1, PRODUCT_ELEMENTS // len(rows))
    parts = []
    for start in range(0, len(tokens), block):
        part = tokens[start : start + block]
        distance = squares[part, None] + squares - 2 * rows[part] @ rows.T  # squared
        distance.scatter_(1, part[:, None], torch.inf)
        parts.append(part[distance.amin(1) <= NEAR**2 * squares[part]])
        on_stage("nearly equal rows", min(start + block, len(tokens)), len(tokens))
    copies = torch.cat(parts)
    repeated = []
    rest = copies
    while len(rest):
        near = (rows[rest] - rows[rest[0]]).square().sum(1) <= NEAR**2 * squares[rest[0]]
        repeated.append(rest[near][1:])
        rest = rest[~near]
    return copies, torch.cat(repeated) if repeated else copies


def equals_mixture(tokens: Tensor, shares: Tensor, layer: Layer) -> Tensor:
    """Return, for each token, whether the mixture of other rows with these shares (t, V) proves that it never wins."""
    difference = shares @ layer.rows - layer.rows[tokens]
    if layer.has_bias:
        difference[:, -1].clamp_(max=0)  # the mixture may have a larger bias
    valid = (shares.amin(1) >= 0) & ((shares.sum(1) - 1).abs() <= RESIDUAL)
    return valid & (difference.abs().amax(1) <= RESIDUAL)


def settle(tokens: Tensor, h: Tensor, layer: Layer, steps: int, on_stage: OnStage) -> tuple[Tensor, Tensor, Tensor]:
    """Continue the search from h; return the new h, and which tokens are proven to win and never to win."""
    h = h.clone()
    won = torch.zeros_like(tokens, dtype=torch.bool)
    lost = torch.zeros_like(won)
    block = 256 if tokens.is_cuda else 64  # many fill a GPU, few fit into the cache of a CPU
    for start in range(0, len(tokens), block):
        part = slice(start, start + block)
        h[part], shares = search(tokens[part], h[part], layer.x, layer.has_bias, steps)
        won[part] = wins(tokens[part], unwhiten(h[part], layer), layer)
        lost[part] = equals_mixture(tokens[part], shares, layer)
        on_stage("search for proofs", min(start + block, len(tokens)), len(tokens))
    return h, won, lost


def can_win(token: int, h: Tensor, layer: Layer, nnls: Any) -> bool | None:
    """Decide whether an h gives the token the largest product, from the rows that come close; None if too many do."""
    this = torch.tensor([token], device=h.device)
    rivals = this[:0]
    while True:
        products = (layer.x @ h).index_fill_(0, this, -torch.inf)
        closest = products.topk(min(max(FIRST_RIVALS, len(rivals)), len(products) - 1)).indices
        known = len(rivals)
        rivals = torch.cat([rivals, closest]).unique()
        if len(rivals) == known or len(rivals) * len(h) > SYSTEM_ELEMENTS:
            return None
        try:
            shares, h = nearest_mixture(token, rivals, layer.x, layer.has_bias, nnls)
        except RuntimeError:  # too many iterations
            return None
        if equals_mixture(this, torch.zeros_like(products).index_add_(0, rivals, shares)[None], layer):
            return False
        if wins(this, unwhiten(h[None], layer), layer):
            return True


def _import_nnls() -> Any:
    try:
        from scipy.optimize import nnls
    except ImportError:
        raise MissingPackageError("SciPy", "doctor") from None
    return nnls
