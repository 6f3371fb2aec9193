"""The algebra of a finite language: the ranks in F(A), the D that a model needs, and exact models.

F(A) is the set of all A + lambda 1^T: A with a number added to each row. With C = I - 11^T / M, the matrix A C is A
with centred rows. It is a member of F(A), and the one of lowest rank, since A' C = A C for every member A'. Therefore
(sections 2.1 and 2.4; proofs in docs/theory.md)

    min rank over F(A)  = rank(A C)          and every member has this rank or one more
    a Softmax fits      <=> D >= rank(A C)   or, with an output bias, D >= rank of A centred by rows and columns
    a MoS fits          if  D >= ceil(M / K) - 1 + min(2, K - 1), for any rank

Shapes: A (N, M); models as in `models`.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from highrank.analysis.finite_language.models import COMPUTED, Model
from highrank.analysis.rank import numerical_rank
from highrank.data.synthetic import FiniteLanguage


@dataclass(frozen=True)
class MatrixRanks:
    a: int  # of A = log P*
    lowest: int  # in F(A): the D that a softmax without a bias needs
    lowest_with_bias: int  # the D that a softmax with a bias needs

    def enough(self, bias: bool) -> int:
        return self.lowest_with_bias if bias else self.lowest


def ranks(language: FiniteLanguage) -> MatrixRanks:
    """Measure the ranks of A and of its centred versions."""
    a = language.log_p
    size = torch.linalg.matrix_norm(a, ord=2).item()  # centring leaves round-off of A's size
    matrices = (a, centred(a), centred(a, columns=True))
    return MatrixRanks(*(numerical_rank(torch.linalg.svdvals(x), a.shape, COMPUTED * size) for x in matrices))


def centred(a: Tensor, columns: bool = False) -> Tensor:
    """Subtract the mean of each row and, with `columns`, then that of each column (as an output bias can)."""
    a = a - a.mean(dim=1, keepdim=True)
    return a - a.mean(dim=0) if columns else a


def softmax_by_svd(language: FiniteLanguage, embed_dim: int, bias: bool) -> Model:
    """Return the softmax whose logits are the best rank-D approximation of A C; it is exact if D is enough."""
    u, s, vt = torch.linalg.svd(centred(language.log_p, columns=bias), full_matrices=False)
    d = min(embed_dim, len(s))
    root = s[:d].sqrt()
    zeros = (0, embed_dim - d)
    h = torch.nn.functional.pad(u[:, :d] * root, zeros)
    w = torch.nn.functional.pad(vt[:d].T * root, zeros)
    b = centred(language.log_p).mean(dim=0) if bias else None
    return Model("softmax", h.unsqueeze(1), h.new_zeros(len(h), 1), w.contiguous(), b)


def softmax_floor(language: FiniteLanguage, embed_dim: int, bias: bool) -> float:
    """Return a KL that no Softmax and no MoC of size D can reach; it is zero only if D is enough.

        KL >= p_min / (2 N) * (exp(-t) + t - 1),   t^2 = 2 * sum_{j > D} sigma_j^2

    sigma: singular values of A C (of the doubly centred A with a bias); p_min: the smallest probability. The bound is
    weak but proven: Eckart and Young bound the error of the logits, the curvature of logsumexp turns it into KL.
    """
    sigma = torch.linalg.svdvals(centred(language.log_p, columns=bias))[embed_dim : ranks(language).enough(bias)]
    t = math.sqrt(2 * sigma.square().sum().item())
    return math.exp(language.log_p.min().item()) / (2 * len(language.log_p)) * (math.expm1(-t) + t)


def mos_enough(n_words: int, n_components: int) -> int:
    """Return the D at which a MoS of 2 to M components can represent every language over M words."""
    return math.ceil(n_words / n_components) - 1 + min(2, n_components - 1)


def mos_by_groups(language: FiniteLanguage, n_components: int, embed_dim: int) -> Model | None:
    """Construct a MoS that equals P* up to round-off, for any rank; None if D is too small.

    The words are divided into K groups, and component k predicts the words of group k only. Groups are points on a
    circle: the first two coordinates of h_k point at group k with a large length, the others are the log-odds within
    the group. The mixture weight is the group's probability.
    """
    a = language.log_p
    n, m = a.shape
    k = n_components
    if embed_dim < mos_enough(m, k):
        return None
    select = min(2, k - 1)  # coordinates that select a group: two groups fit on a line
    angle = torch.arange(k, dtype=a.dtype) * (2 * math.pi / k)
    place = torch.stack([angle.cos(), angle.sin()], dim=1)[:, :select]  # (K, select)
    apart = 1 - math.cos(2 * math.pi / k)
    # A word of another group gets at most exp(-length * apart); even M of them must vanish beside the rarest word.
    length = (40 - a.min().item() + math.log(m)) / apart
    w = a.new_zeros(m, embed_dim)
    h = a.new_zeros(n, k, embed_dim)
    prior = a.new_zeros(n, k)
    for group in range(k):
        words = torch.arange(group, m, k)
        prior[:, group] = a[:, words].logsumexp(dim=1)
        h[:, group, :select] = length * place[group]
        h[:, group, select : select + len(words) - 1] = a[:, words[1:]] - a[:, words[:1]]
        w[words, :select] = place[group]
        w[words[1:], torch.arange(select, select + len(words) - 1)] = 1.0
    return Model("mos", h, prior, w, None)
