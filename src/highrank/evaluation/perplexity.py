"""Exact perplexity per token: every token of the stream except the first is predicted once.

With one column, the hidden state is carried through the whole stream. With B columns, the stream is cut into B parts of
equal length that each start from a zero state. That is faster, and slightly pessimistic because of the B - 1 cold
starts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from highrank.evaluation.score import perplexity
from highrank.models.awd_lstm import Hidden
from highrank.models.language_model import LanguageModel
from highrank.ops.lstm import State
from highrank.progress import OnProgress, no_progress

Model = TypeVar("Model", bound=nn.Module)
P = ParamSpec("P")
Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Evaluation:
    losses: Tensor  # (n,) float64: -log p of every predicted token, in nats

    @property
    def nll(self) -> float:
        """The mean loss in nats per token."""
        return self.losses.mean().item()

    @property
    def tokens(self) -> int:
        """The number of predicted tokens."""
        return len(self.losses)

    @property
    def perplexity(self) -> float:
        return perplexity(self.nll)


def in_eval_mode(function: Callable[Concatenate[Model, P], Result]) -> Callable[Concatenate[Model, P], Result]:
    """Run `function(model, ...)` in evaluation mode, then restore every module's previous mode."""

    @wraps(function)
    def wrapped(model: Model, *args: P.args, **kwargs: P.kwargs) -> Result:
        modes = [(module, module.training) for module in model.modules()]  # submodules may differ from the model
        model.eval()
        try:
            return function(model, *args, **kwargs)
        finally:
            for module, training in modes:
                module.training = training

    return wrapped


@torch.no_grad()
@in_eval_mode
def evaluate(
    model: LanguageModel,
    ids: Tensor,  # (T,)
    batch_size: int = 1,
    *,
    window: int | None = None,
    score: Callable[[Tensor, Tensor, list[State]], tuple[Tensor, Hidden]] | None = None,
    on_progress: OnProgress = no_progress,
) -> Evaluation:
    """Compute the losses of ids[1:] in `batch_size` columns.

    `window` is the number of rows per forward pass; it bounds memory and does not change the result. `score` replaces
    the model's forward pass, for example to validate in the precision of training.
    """
    if len(ids) < 2:
        raise ValueError("evaluation needs at least two tokens, because the first one is not predicted")
    device = next(model.parameters()).device
    words, targets = prediction_columns(ids.to(device), batch_size)
    window = window or max(1, 2000 // words.shape[1])
    state = model.initial_state(words.shape[1])
    losses = []
    for start in range(0, len(words), window):
        rows = slice(start, start + window)
        nll, hidden = (score or model)(words[rows], targets[rows], state)
        state = hidden.state
        losses.append(nll.double())
        on_progress(min(start + window, len(words)), len(words))
    stream = torch.cat(losses).t().flatten()  # the columns one after the other, then the padding
    return Evaluation(stream[: len(ids) - 1])


def prediction_columns(ids: Tensor, batch_size: int) -> tuple[Tensor, Tensor]:
    """Cut a (T,) stream into columns: words and targets, (ceil((T - 1) / B), B) each.

    Each column predicts consecutive targets; its first input is the token before the first of them. The last columns
    are padded with word 0 to the same length.
    """
    n = len(ids) - 1
    batch_size = min(batch_size, n)
    length = -(-n // batch_size)
    padded = torch.cat([ids, ids.new_zeros(length * batch_size - n)])
    return padded[:-1].view(batch_size, length).t(), padded[1:].view(batch_size, length).t()
