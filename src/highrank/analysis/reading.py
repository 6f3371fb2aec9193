"""A model's reading of a stream: the loss of every token, and the way back to any step of it.

The first pass goes through the head's exact loss, which builds no distribution, and keeps the recurrent state at the
start of every window: some megabytes for a corpus, in however many columns it is read. The second takes up the windows
of the steps that turned out to be of interest, from the state kept there, so that g is what it was in the first pass
without g of every step being kept.

Shapes: S predicted tokens (all of the stream but the first), in B columns of L rows as in `evaluation/perplexity.py`;
states (windows, B, 2 sum of H_l), the h and c of all layers side by side.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from highrank.evaluation.mode import in_eval_mode
from highrank.evaluation.perplexity import prediction_columns
from highrank.models.language_model import LanguageModel
from highrank.ops.lstm import State
from highrank.progress import OnProgress

TOKENS = 128  # read at a time, of all columns together
MOST_STATES = 1000  # kept, of all columns together: the windows of a long stream or of many columns are longer


@dataclass(frozen=True)
class Reading:
    nll: Tensor  # (S,) float32 (float64 for a float64 model), on the CPU, as `states` is
    states: Tensor  # (windows, B, 2 sum of H_l)
    window: int  # rows; a step is at most this far from a kept state


@torch.no_grad()
@in_eval_mode
def read(
    model: LanguageModel,
    ids: Tensor,  # (S + 1,)
    batch_size: int = 1,
    on_progress: OnProgress | None = None,
) -> Reading:
    """The loss of ids[1:]. One column carries the state through the whole stream; B columns start B times from zero."""
    if len(ids) < 2:
        raise ValueError("a stream of at least two tokens is needed: the first is never predicted")
    words, targets, real = prediction_columns(ids.to(_device(model)), batch_size)
    length, columns = words.shape
    step = max(1, TOKENS // columns, -(-length // MOST_STATES))  # rows
    state = model.initial_state(columns)
    starts = range(0, length, step)
    every = -(-len(starts) * columns // MOST_STATES)  # steps to a window
    # Made once: small results that stay, between large ones that go, would leave the heap in pieces and ever larger.
    packed = _packed(state)
    losses = torch.empty(length, columns, dtype=torch.promote_types(packed.dtype, torch.float32))
    states = torch.empty(-(-len(starts) // every), *packed.shape, dtype=packed.dtype)
    for i, start in enumerate(starts):
        rows = slice(start, start + step)
        if i % every == 0:
            states[i // every] = _packed(state)
        losses[rows], hidden = model(words[rows], targets[rows], state)
        state = hidden.state
        if on_progress:
            on_progress(min(start + step, length), length)
    nll = losses.t()[real.t().cpu()]  # column after column is the order of the stream
    return Reading(nll, states, step * every)


@torch.no_grad()
def hidden_at(
    model: LanguageModel, ids: Tensor, reading: Reading, steps: Iterable[int]
) -> Iterator[tuple[int, Tensor]]:
    """(step, g) for each of `steps`, g (H,) as `read` met it; step s predicts ids[s + 1]."""
    columns = reading.states.shape[1]
    words, _, _ = prediction_columns(ids.to(_device(model)), columns)
    rows_of: dict[tuple[int, int], list[int]] = {}  # by column and window
    for step in sorted(set(steps)):
        column, row = divmod(step, len(words))
        rows_of.setdefault((column, row // reading.window), []).append(row)
    for (column, window), rows in rows_of.items():
        start = window * reading.window
        state = _unpacked(model, reading.states[window, column][None].to(words.device))
        g = _hidden(model, words[start : rows[-1] + 1, column][:, None], state)[:, 0]  # (rows, H)
        for row in rows:
            yield column * len(words) + row, g[row - start]


@in_eval_mode
def _hidden(model: LanguageModel, words: Tensor, state: list[State]) -> Tensor:
    g: Tensor = model.backbone(words, state).g
    return g


def _device(model: LanguageModel) -> torch.device:
    return next(model.parameters()).device


def _packed(state: list[State]) -> Tensor:
    return torch.cat([tensor for pair in state for tensor in pair], dim=-1)  # (B, 2 sum of H_l)


def _unpacked(model: LanguageModel, packed: Tensor) -> list[State]:
    parts = packed.split([size for size in model.backbone.hidden_sizes for _ in range(2)], dim=-1)
    return list(zip(parts[0::2], parts[1::2], strict=True))
