"""Read a stream once for the loss of every token, then revisit any step of it exactly.

The first pass uses the head's exact loss, which builds no distribution, and saves the recurrent state at the start of
every window: a few megabytes per corpus. The second pass recomputes g only in the windows that contain the steps of
interest, starting from the saved state, so it sees the same g as the first pass.

Shapes: S predicted tokens (all of the stream but the first); states (windows, 1, 2 sum of H_l), the h and c of all
layers side by side.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from highrank.evaluation.perplexity import in_eval_mode
from highrank.models.language_model import LanguageModel
from highrank.ops.lstm import State
from highrank.progress import OnProgress, no_progress

WINDOW = 128  # tokens per forward pass, and between saved states
MAX_STATES = 1000  # saved; long streams get longer windows instead of more states


@dataclass(frozen=True)
class Reading:
    """Losses of a stream and the recurrent states to revisit it, both on the CPU."""

    nll: Tensor  # (S,) float32, or float64 for a float64 model
    states: Tensor  # (windows, 1, 2 sum of H_l)
    window: int  # tokens between saved states


@torch.no_grad()
@in_eval_mode
def read(model: LanguageModel, ids: Tensor, on_progress: OnProgress = no_progress) -> Reading:  # ids (S + 1,)
    """Compute the loss of every token of ids[1:]; the state is carried from a zero state through the whole stream."""
    if len(ids) < 2:
        raise ValueError("a stream of at least two tokens is needed: the first is never predicted")
    ids = ids.to(_device(model))[:, None]
    length = len(ids) - 1
    window = max(WINDOW, -(-length // MAX_STATES))
    state = model.initial_state(1)
    # Allocated once: small tensors kept between large temporary ones would fragment the heap.
    packed = _pack_state(state)
    nll = torch.empty(length, dtype=torch.promote_types(packed.dtype, torch.float32))
    states = torch.empty(-(-length // window), *packed.shape, dtype=packed.dtype)
    for i, start in enumerate(range(0, length, window)):
        stop = min(start + window, length)
        states[i] = _pack_state(state)
        losses, hidden = model(ids[start:stop], ids[start + 1 : stop + 1], state)
        nll[start:stop] = losses[:, 0]
        state = hidden.state
        on_progress(stop, length)
    return Reading(nll, states, window)


@torch.no_grad()
def hidden_at(
    model: LanguageModel, ids: Tensor, reading: Reading, steps: Iterable[int]
) -> Iterator[tuple[int, Tensor]]:
    """Yield (step, g) for each of `steps`, with g (H,) as in the first pass; step s predicts ids[s + 1]."""
    ids = ids.to(_device(model))[:, None]
    steps_of: dict[int, list[int]] = {}  # by window
    for step in sorted(set(steps)):
        steps_of.setdefault(step // reading.window, []).append(step)
    for window, inside in steps_of.items():
        start = window * reading.window
        state = _unpack_state(model, reading.states[window].to(ids.device))
        g = _hidden(model, ids[start : inside[-1] + 1], state)[:, 0]  # (t, H)
        for step in inside:
            yield step, g[step - start]


@in_eval_mode
def _hidden(model: LanguageModel, words: Tensor, state: list[State]) -> Tensor:
    g: Tensor = model.backbone(words, state).g
    return g


def _device(model: LanguageModel) -> torch.device:
    return next(model.parameters()).device


def _pack_state(state: list[State]) -> Tensor:
    return torch.cat([tensor for pair in state for tensor in pair], dim=-1)  # (B, 2 sum of H_l)


def _unpack_state(model: LanguageModel, packed: Tensor) -> list[State]:
    parts = packed.split([size for size in model.backbone.hidden_sizes for _ in range(2)], dim=-1)
    return list(zip(parts[0::2], parts[1::2], strict=True))
