"""Read a stream once for the loss of every token, then revisit any step of it exactly.

The first pass uses the head's exact loss, which builds no distribution, and saves the recurrent state at the start of
every window: a few megabytes per corpus. The second pass recomputes g only in the windows that contain the steps of
interest, starting from the saved state, so it sees the same g as the first pass.

Shapes: S predicted tokens (all of the stream but the first), in B columns of L rows as in `evaluation/perplexity.py`;
states (windows, B, 2 sum of H_l), the h and c of all layers side by side.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from highrank.evaluation.perplexity import in_eval_mode, prediction_columns
from highrank.models.language_model import LanguageModel
from highrank.ops.lstm import State
from highrank.progress import OnProgress, no_progress

TOKENS = 128  # per forward pass, over all columns
MAX_STATES = 1000  # saved states over all columns; long streams get longer windows instead of more states


@dataclass(frozen=True)
class Reading:
    """Losses of a stream and the recurrent states to revisit it, both on the CPU."""

    nll: Tensor  # (S,) float32, or float64 for a float64 model
    states: Tensor  # (windows, B, 2 sum of H_l)
    window: int  # rows per window: the distance between saved states


@torch.no_grad()
@in_eval_mode
def read(
    model: LanguageModel,
    ids: Tensor,  # (S + 1,)
    batch_size: int = 1,
    on_progress: OnProgress = no_progress,
) -> Reading:
    """Compute the loss of every token of ids[1:]; each of the `batch_size` columns starts from a zero state."""
    if len(ids) < 2:
        raise ValueError("a stream of at least two tokens is needed: the first is never predicted")
    words, targets, real = prediction_columns(ids.to(_device(model)), batch_size)
    length, columns = words.shape
    step = max(1, TOKENS // columns, -(-length // MAX_STATES))  # rows
    state = model.initial_state(columns)
    starts = range(0, length, step)
    passes = -(-len(starts) * columns // MAX_STATES)  # forward passes per window
    # Allocated once: small tensors kept between large temporary ones would fragment the heap.
    packed = _packed(state)
    losses = torch.empty(length, columns, dtype=torch.promote_types(packed.dtype, torch.float32))
    states = torch.empty(-(-len(starts) // passes), *packed.shape, dtype=packed.dtype)
    for i, start in enumerate(starts):
        rows = slice(start, start + step)
        if i % passes == 0:
            states[i // passes] = _packed(state)
        losses[rows], hidden = model(words[rows], targets[rows], state)
        state = hidden.state
        on_progress(min(start + step, length), length)
    nll = losses.t()[real.t().cpu()]  # column by column, which is the order of the stream
    return Reading(nll, states, step * passes)


@torch.no_grad()
def hidden_at(
    model: LanguageModel, ids: Tensor, reading: Reading, steps: Iterable[int]
) -> Iterator[tuple[int, Tensor]]:
    """Yield (step, g) for each of `steps`, with g (H,) as in the first pass; step s predicts ids[s + 1]."""
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
