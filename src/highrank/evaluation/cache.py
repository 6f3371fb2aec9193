"""The continuous cache pointer (Grave et al. 2016): words that followed similar hidden states become likelier again.

    p_cache(w) ∝ sum over i < t, i >= t - window, with x_(i+1) = w, of exp(theta h_t . h_i)
    p(w) = (1 - lambda) p_model(w) + lambda p_cache(w)

h are the raw hidden states of the last layer. The first prediction has an empty cache and is the model's alone.

Shapes: T tokens of one stream, W the largest window, H hidden units; a block of t steps scores (t, W + t) pairs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from highrank.evaluation.mode import in_eval_mode
from highrank.evaluation.perplexity import Evaluation, OnProgress
from highrank.models.language_model import LanguageModel
from highrank.recipes.recipe import CacheSettings


class Probabilities(NamedTuple):
    """What model and cache give to each word that came, in float64."""

    model: Tensor  # (T - 1,)
    cache: Tensor  # (windows, thetas, T - 1)
    empty: Tensor  # (T - 1,) bool: nothing remembered yet


def cache_evaluate(
    model: LanguageModel,
    ids: Tensor,  # (T,)
    settings: CacheSettings,
    *,
    block: int = 500,
    on_progress: OnProgress | None = None,
) -> Evaluation:
    """Mean loss of ids[1:] under the mixture of model and cache; `block` bounds memory only."""
    p = cache_probabilities(model, ids, [settings.window], [settings.theta], block=block, on_progress=on_progress)
    return Evaluation(mixed_nll(p.model, p.cache[0, 0], p.empty, settings.lamb), len(ids) - 1)


def mixed_nll(p_model: Tensor, p_cache: Tensor, empty: Tensor, lamb: float) -> float:
    """Mean loss of the mixture, where there is something to mix in."""
    mixed = (1 - lamb) * p_model + lamb * p_cache
    return -torch.where(empty, p_model, mixed).log().mean().item()


@torch.no_grad()
@in_eval_mode
def cache_probabilities(
    model: LanguageModel,
    ids: Tensor,  # (T,)
    windows: Sequence[int],
    thetas: Sequence[float],
    *,
    block: int = 500,
    on_progress: OnProgress | None = None,
) -> Probabilities:
    """One pass over the text for every pair of a window and a theta: the model's own work is done once."""
    device = next(model.parameters()).device
    words, targets = ids[:-1].to(device), ids[1:].to(device)
    state = model.initial_state(1)
    keys = torch.empty(0, model.backbone.hidden_sizes[-1], device=device, dtype=model.backbone.embedding.dtype)
    p_model = torch.empty(len(words), dtype=torch.float64, device=device)
    p_cache = torch.zeros(len(windows), len(thetas), len(words), dtype=torch.float64, device=device)
    for start in range(0, len(words), block):
        rows = slice(start, start + block)
        y = targets[rows]  # (t,)
        scored = model(words[rows, None], y[:, None], state)
        state, queries = scored.hidden.state, scored.hidden.raw[:, 0]  # (t, H)
        p_model[rows] = scored.nll[:, 0].double().neg().exp()
        first = start - len(keys)  # the position of the oldest key
        keys = torch.cat([keys, queries])  # (W + t, H)

        step = torch.arange(start, start + len(y), device=device)[:, None]  # (t, 1)
        position = torch.arange(first, first + len(keys), device=device)[None, :]  # (1, W + t)
        same = targets[position[0]][None, :] == y[:, None]  # (t, W + t)
        similarity = queries @ keys.T
        for i, window in enumerate(windows):
            outside = (position >= step) | (position < step - window)
            for j, theta in enumerate(thetas):
                scores = (theta * similarity).masked_fill(outside, -torch.inf)
                attention = torch.softmax(scores.double(), dim=1).nan_to_num(0.0)  # NaN: an empty cache
                p_cache[i, j, rows] = (attention * same).sum(1)
        keys = keys[-max(windows) :]
        if on_progress:
            on_progress(start + len(y), len(words))
    return Probabilities(p_model, p_cache, torch.arange(len(words), device=device) == 0)
