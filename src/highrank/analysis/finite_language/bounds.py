"""What algebra alone says about a finite language: the ranks of F(A), which D is enough, and models written down.

With C = I - 11^T / M, the matrix A C is A with centred rows: a member of F(A), and the one of lowest rank, since every
member A' has A' C = A C. So (sections 2.1 and 2.4; proofs in docs/theory.md)

    min rank over F(A)  = rank(A C)          and every member has this rank or one more
    a Softmax fits      <=> D >= rank(A C)   or, with an output bias, D >= rank of A centred by rows and columns
    a MoS fits whatever the rank, as soon as D >= ceil(M / K) - 1 + min(2, K - 1)

Shapes: A (N, M); models as in `laboratory`.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from highrank.analysis.finite_language.laboratory import Model, rank
from highrank.data.synthetic import FiniteLanguage


@dataclass(frozen=True)
class Ranks:
    a: int  # of A = log P*
    lowest: int  # of F(A): what a softmax without a bias needs
    lowest_with_bias: int  # what a softmax with a bias needs

    def enough(self, bias: bool) -> int:
        return self.lowest_with_bias if bias else self.lowest


def ranks(language: FiniteLanguage) -> Ranks:
    a = language.log_p
    size = torch.linalg.matrix_norm(a, ord=2).item()  # centring leaves round-off of A's size behind
    return Ranks(*(rank(torch.linalg.svdvals(x), a.shape, size) for x in (a, centred(a), centred(a, columns=True))))


def centred(a: Tensor, columns: bool = False) -> Tensor:
    """A with the mean of each row taken away, and then that of each column: what a bias can take away."""
    a = a - a.mean(dim=1, keepdim=True)
    return a - a.mean(dim=0) if columns else a


def softmax_by_svd(language: FiniteLanguage, embed_dim: int, bias: bool) -> Model:
    """The softmax whose logits are the best rank-D approximation of A C: exact as soon as D is enough."""
    rows = centred(language.log_p)
    u, s, vt = torch.linalg.svd(centred(language.log_p, columns=bias), full_matrices=False)
    d = min(embed_dim, len(s))
    root = s[:d].sqrt()
    h, w = u[:, :d] * root, vt[:d].T * root
    zeros = (0, embed_dim - d)
    h, w = torch.nn.functional.pad(h, zeros), torch.nn.functional.pad(w, zeros)
    prior = h.new_zeros(len(h), 1)
    return Model("softmax", h.unsqueeze(1), prior, w.contiguous(), rows.mean(dim=0) if bias else None)


def softmax_floor(language: FiniteLanguage, embed_dim: int, bias: bool) -> float:
    """A KL that no Softmax and no MoC of size D can go below, whatever its context vectors: zero only if D is enough.

        KL >= p_min / (2 N) * (exp(-t) + t - 1),   t^2 = 2 * sum_{j > D} sigma_j^2

    sigma: singular values of A C (of the doubly centred A with a bias), p_min: the language's smallest probability.
    Weak, but proven: Eckart and Young bound the error of the logits, the curvature of logsumexp turns it into KL.
    """
    sigma = torch.linalg.svdvals(centred(language.log_p, columns=bias))[embed_dim : ranks(language).enough(bias)]
    t = math.sqrt(2 * sigma.square().sum().item())
    return math.exp(language.log_p.min().item()) / (2 * len(language.log_p)) * (math.expm1(-t) + t)


def mos_enough(n_words: int, n_components: int) -> int:
    """The D at which a MoS fits every language over M words."""
    k = min(n_components, n_words)
    return math.ceil(n_words / k) - 1 + min(2, k - 1)


def mos_by_groups(language: FiniteLanguage, n_components: int, embed_dim: int) -> Model | None:
    """A MoS that says P* to round-off, whatever its rank: component k speaks of the words of group k only.

    Groups stand on a circle, and the first two coordinates of h_k point at group k with a large length; the others are
    the log-odds within the group. The mixture weight is the group's probability. None where D is too small for it.
    """
    a = language.log_p
    n, m = a.shape
    k = min(n_components, m)
    select, within = min(2, k - 1), math.ceil(m / k) - 1
    if embed_dim < select + within:
        return None
    angle = torch.arange(k, dtype=a.dtype) * (2 * math.pi / k)
    place = torch.stack([angle.cos(), angle.sin()], dim=1)[:, :select]  # (k, select); on a line for two groups
    apart = 1 - math.cos(2 * math.pi / k) if k > 1 else 1.0
    # A word of another group gets at most exp(-length * apart): even summed, that must vanish beside the rarest word.
    length = (40 - a.min().item() + math.log(m)) / apart
    w = a.new_zeros(m, embed_dim)
    h = a.new_zeros(n, n_components, embed_dim)
    prior = a.new_zeros(n, n_components)
    for component in range(n_components):  # components beyond M repeat earlier ones and share their weight
        group = component % k
        words = torch.arange(group, m, k)
        copies = len(range(group, n_components, k))
        prior[:, component] = a[:, words].logsumexp(dim=1) - math.log(copies)
        h[:, component, :select] = length * place[group]
        h[:, component, select : select + len(words) - 1] = a[:, words[1:]] - a[:, words[:1]]
        w[words, :select] = place[group]
        w[words[1:], torch.arange(select, select + len(words) - 1)] = 1.0
    return Model("mos", h, prior, w, None)
