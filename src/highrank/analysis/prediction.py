"""A model's prediction at one step: its most probable words, the reference word's rank, and the components behind it.

Component k of a mixture has a weight pi_k and a distribution p_k = softmax(h_k W^T + b). MoS predicts with their
arithmetic mean, p = sum_k pi_k p_k (section 2.4), so the responsibility r_k = pi_k p_k(y) / p(y) is component k's share
of the reference's probability. MoC mixes before the softmax (section 2.5), which makes its prediction the normalised
geometric mean of the p_k: there p_k is only what the softmax gives for h_k alone, and has no responsibility.

Shapes: g (H,), K components, V words.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from highrank.evaluation.perplexity import in_eval_mode
from highrank.heads import MoCHead, MoSHead
from highrank.models.language_model import LanguageModel


@dataclass(frozen=True)
class Candidate:
    word: str
    p: float


@dataclass(frozen=True)
class Component:
    index: int  # 1 to K
    weight: float  # pi_k
    p_reference: float  # p_k(y)
    share: float | None  # r_k; None for MoC
    top: list[Candidate]  # by p_k


@dataclass(frozen=True)
class Prediction:
    nll: float  # of the reference, in nats
    p_reference: float
    rank: int  # of the reference; 1 is the most probable word
    top: list[Candidate]
    components: list[Component]  # largest weight first; empty for a softmax


@torch.no_grad()
@in_eval_mode
def predict(model: LanguageModel, g: Tensor, reference: int, words: list[str], top: int) -> Prediction:
    """Describe the prediction from hidden state g (H,) when the next word is `reference`."""
    log_p = model.head.log_prob(g[None])[0]  # (V,)
    nll = -log_p[reference].item()
    return Prediction(
        nll=nll,
        p_reference=log_p[reference].exp().item(),
        rank=int((log_p > log_p[reference]).sum()) + 1,
        top=_top(log_p, words, top),
        components=_components(model, g, reference, nll, words, top),
    )


def _components(
    model: LanguageModel, g: Tensor, reference: int, nll: float, words: list[str], top: int
) -> list[Component]:
    """Describe the components of a mixture, the one with the largest weight first."""
    head = model.head
    if not isinstance(head, MoSHead):  # MoCHead is a MoSHead
        return []
    log_pi, h = head.log_components(g)  # (K,), (K, D)
    components = []
    for k in log_pi.argsort(descending=True).tolist():  # one at a time, so that memory does not grow with K V
        log_p = torch.log_softmax(F.linear(h[k], head.weight, head.bias).to(log_pi.dtype), dim=-1)  # (V,)
        share = None if isinstance(head, MoCHead) else (log_pi[k] + log_p[reference] + nll).exp().item()
        weight = log_pi[k].exp().item()
        components.append(Component(k + 1, weight, log_p[reference].exp().item(), share, _top(log_p, words, top)))
    return components


def _top(log_p: Tensor, words: list[str], top: int) -> list[Candidate]:
    best = log_p.topk(min(top, len(log_p)))
    return [Candidate(words[i], p) for i, p in zip(best.indices.tolist(), best.values.exp().tolist(), strict=True)]
