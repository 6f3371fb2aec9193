"""Describe an output matrix W (V, D) from its weights alone: rank, spectrum, norms and isotropy of the rows."""

from dataclasses import dataclass

import torch
from torch import Tensor

from highrank.analysis.factors import r_factor, reduced_qr, svd
from highrank.analysis.rank import effective_rank, numerical_rank
from highrank.analysis.record import Spectrum, full_spectrum, thin_spectrum

QUANTILES = 21  # 0 %, 5 %, ..., 100 %


@dataclass(frozen=True)
class OutputLayer:
    """The output matrix W of a softmax, or the one that the components of a mixture share."""

    vocabulary: int
    embed_dim: int
    has_bias: bool
    rank: int
    effective_rank: float
    rank_bound: int  # of the log-probabilities of one softmax: rank of W, plus bias, plus normaliser
    spectrum: Spectrum
    norms: list[float]  # of the rows: their quantiles at 0 %, 5 %, ..., 100 %
    mean_cosine: float  # of two different rows; 0 if they point everywhere equally
    isotropy: float  # of Mu and Viswanath (2018): 1 if no direction stands out


@torch.no_grad()
def describe_layer(weight: Tensor, bias: Tensor | None) -> OutputLayer:
    """Describe W in float64."""
    weight = weight.double()
    vocabulary, dim = weight.shape
    _, values, directions = svd(r_factor(weight))  # directions: rows, (D, D)
    rank = numerical_rank(values, weight.shape)
    norms = weight.norm(dim=1)
    products = weight @ directions.T
    partition = torch.cat([products, -products], dim=1).logsumexp(0)  # (2 D,) log Z of each direction, both ways
    return OutputLayer(
        vocabulary=vocabulary,
        embed_dim=dim,
        has_bias=bias is not None,
        rank=rank,
        effective_rank=effective_rank(values),
        rank_bound=min(vocabulary, rank + (1 if bias is None else 2)),
        spectrum=thin_spectrum(full_spectrum(values)),
        norms=quantiles(norms),
        mean_cosine=mean_cosine(weight),
        isotropy=(partition.min() - partition.max()).exp().item(),
    )


def mean_cosine(vectors: Tensor) -> float:
    """Return the mean cosine of all pairs of different rows (n, D). Rows of zeros do not count."""
    norms = vectors.norm(dim=1)
    unit_rows = vectors[norms > 0] / norms[norms > 0, None]
    n = len(unit_rows)
    return ((unit_rows.sum(0).square().sum() - n) / max(1, n * (n - 1))).item()


def quantiles(values: Tensor) -> list[float]:
    """Return the quantiles of values at 0 %, 5 %, ..., 100 %."""
    ordered = values.sort().values
    index = torch.linspace(0, len(values) - 1, QUANTILES).round().long()
    return ordered[index.to(values.device)].tolist()


@torch.no_grad()
def column_basis(weight: Tensor) -> Tensor:
    """Return orthonormal columns (V, rank of W) that span the columns of W."""
    weight = weight.double()
    q, r = reduced_qr(weight)
    u, values, _ = svd(r)
    return q @ u[:, : numerical_rank(values, weight.shape)]
