"""Diagnose an output layer: what it can and cannot express, from its weights and, with a text, from its predictions.

    from highrank.analysis.diagnosis import diagnose_weights
    diagnose_weights(linear.weight, linear.bias).unargmaxable.tokens

`highrank.runs.doctor` does this for runs and for Hugging Face models, and adds the text.

Shapes: W (V, D), b (V,); log pi (t, K), h (t, K, D); ids (T,).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from highrank.analysis.argmax import Unargmaxable, find_unargmaxable
from highrank.analysis.gradient import Shares, gradient_share, random_share, reach, summarize_shares
from highrank.analysis.output_layer import OutputLayer, column_basis, describe_layer, mean_cosine
from highrank.analysis.record import Analysis
from highrank.progress import OnStage, no_stages

GRADIENT_TOKENS = 2000  # enough for a mean share
REACH_TOKENS = 16  # each needs hundreds of products with W
BLOCK_ELEMENTS = 2**25  # of the (t, K, V) log-probabilities of a block: 256 MiB in float64

SoftmaxBlocks = Iterator[tuple[Tensor, Tensor]]  # blocks of log pi (t, K) and h (t, K, D), one row per token read


@dataclass(frozen=True)
class WeightDiagnosis:
    """The diagnosis of an output layer from its weights alone."""

    layer: OutputLayer
    unargmaxable: Unargmaxable
    random_share: float  # sqrt(D / V): the gradient share of a random direction


@dataclass(frozen=True)
class GradientDiagnosis:
    """The similarity of the context vectors on a text, and the share of the loss gradient that reaches them."""

    saturation: float  # the mean cosine of two context vectors of one component; 1 if all point the same way
    share: Shares
    reach: Shares | None  # of a mixture, on few tokens; a lower bound


@dataclass(frozen=True, kw_only=True)
class DoctorRecord:
    """The diagnosis of one model: the format of doctor.json."""

    kind: Literal["doctor"] = "doctor"
    model: str
    head: str  # softmax, moc, mos; other: capped or scaled logits
    n_components: int
    weights: WeightDiagnosis
    never: list[str]  # the unargmaxable tokens as text, at most the first hundred
    text: str | None  # name of the file
    tokens: int  # read of the text
    predictions: Analysis | None
    gradient: GradientDiagnosis | None  # None without a text and for capped or scaled logits
    provenance: dict[str, Any]


def diagnose_weights(weight: Tensor, bias: Tensor | None = None, on_stage: OnStage = no_stages) -> WeightDiagnosis:
    """Describe an output layer from its weights."""
    on_stage("the output matrix", 0, None)
    layer = describe_layer(weight, bias)
    return WeightDiagnosis(
        layer=layer,
        unargmaxable=find_unargmaxable(weight, bias, on_stage),
        random_share=random_share(layer.rank, layer.vocabulary),
    )


@torch.no_grad()
def diagnose_gradient(
    weight: Tensor,
    bias: Tensor | None,
    softmaxes: SoftmaxBlocks,
    targets: Tensor,  # (T,) the token after each row of `softmaxes`
    on_stage: OnStage = no_stages,
) -> GradientDiagnosis:
    """Measure the saturation, the gradient share of every token and, for a mixture, the reach of a few."""
    weight = weight.double()
    bias = None if bias is None else bias.double()
    basis = column_basis(weight)
    log_pi, h = (torch.cat(parts).double() for parts in zip(*softmaxes, strict=True))  # (T, K), (T, K, D)
    components = h.shape[1]
    saturation = sum(map(mean_cosine, h.unbind(1))) / components
    shares = []
    done = 0
    for rows in torch.arange(len(targets)).split(max(1, BLOCK_ELEMENTS // (components * len(weight)))):
        shares.append(gradient_share(basis, weight, bias, log_pi[rows], h[rows], targets[rows]))
        done += len(rows)
        on_stage("gradient shares", done, len(targets))
    share = summarize_shares(torch.cat(shares), random_share(basis.shape[1], len(weight)))
    if components == 1:
        return GradientDiagnosis(saturation, share, None)
    on_stage("directions of the mixture", 0, None)
    few = torch.linspace(0, len(targets) - 1, min(REACH_TOKENS, len(targets))).long()
    reached = reach(weight, bias, log_pi[few], h[few], targets[few])
    directions = components * (weight.shape[1] + 1)
    return GradientDiagnosis(saturation, share, summarize_shares(reached, random_share(directions, len(weight))))
