"""Exact token-level perplexity: every token of the stream but the first is predicted once.

With one column the hidden state is carried through the whole stream. With B columns the stream is cut into B runs of
equal length that each start from a zero state: B - 1 cold starts, faster, and a little pessimistic.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from highrank.evaluation.mode import in_eval_mode
from highrank.models.awd_lstm import Hidden
from highrank.models.language_model import LanguageModel
from highrank.ops.lstm import State
from highrank.progress import OnProgress


def perplexity(nats: float) -> float:
    """exp of a mean loss; infinite rather than an OverflowError, and where the loss is not a number."""
    return math.exp(nats) if nats < 700 else math.inf


def shown(ppl: float, digits: int = 2) -> str:
    """58.08; of a model that diverged 5.18e+21 rather than all of its digits."""
    return f"{ppl:.{digits}f}" if ppl < 1e6 else f"{ppl:.3g}"


@dataclass(frozen=True)
class Evaluation:
    nll: float  # nats a token
    tokens: int  # predicted

    @property
    def perplexity(self) -> float:
        return perplexity(self.nll)


@torch.no_grad()
@in_eval_mode
def evaluate(
    model: LanguageModel,
    ids: Tensor,  # (T,)
    batch_size: int = 1,
    *,
    window: int | None = None,
    score: Callable[[Tensor, Tensor, list[State]], tuple[Tensor, Hidden]] | None = None,
    on_progress: OnProgress | None = None,
) -> Evaluation:
    """Mean loss of ids[1:]; the result does not depend on `window`, which bounds memory only.

    `score` stands in for the model's own forward pass, as when training validates in its own precision.
    """
    if len(ids) < 2:
        raise ValueError("a stream of at least two tokens is needed: the first is never predicted")
    device = next(model.parameters()).device
    words, targets, real = prediction_columns(ids.to(device), batch_size)
    window = window or max(1, 2000 // words.shape[1])
    state = model.initial_state(words.shape[1])
    total = torch.zeros((), dtype=torch.float64, device=device)
    for start in range(0, len(words), window):
        rows = slice(start, start + window)
        nll, hidden = (score or model)(words[rows], targets[rows], state)
        state = hidden.state
        total += (nll.double() * real[rows]).sum()
        if on_progress:
            on_progress(min(start + window, len(words)), len(words))
    return Evaluation((total / (len(ids) - 1)).item(), len(ids) - 1)


def prediction_columns(ids: Tensor, batch_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """(T,) -> words, targets and a mask of real predictions, (ceil((T - 1) / B), B) each.

    Column j predicts a run of consecutive targets; the last word before the run is its first input. Unequal ends are
    padded with word 0 and masked.
    """
    n = len(ids) - 1
    batch_size = min(batch_size, n)
    length = -(-n // batch_size)
    padding = ids.new_zeros(length * batch_size - n)
    words = torch.cat([ids[:-1], padding]).view(batch_size, length).t()
    targets = torch.cat([ids[1:], padding]).view(batch_size, length).t()
    real = (torch.arange(length * batch_size, device=ids.device) < n).view(batch_size, length).t()
    return words, targets, real
