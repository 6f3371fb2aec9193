"""The continuous cache pointer (Grave et al. 2016): words that followed similar hidden states become likelier again.

    p_cache(w) ∝ sum over i < t, i >= t - window, with x_(i+1) = w, of exp(theta h_t . h_i)
    p(w) = (1 - lambda) p_model(w) + lambda p_cache(w)

h are the raw hidden states of the last layer. The first prediction has an empty cache and is the model's alone.

Shapes: T tokens of one stream, W the cache's window, H hidden units; a block of t steps scores (t, W + t) pairs.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from highrank.evaluation.perplexity import Evaluation
from highrank.models.language_model import LanguageModel
from highrank.recipes.recipe import CacheSettings


@torch.no_grad()
def cache_evaluate(
    model: LanguageModel,
    ids: Tensor,  # (T,)
    settings: CacheSettings,
    *,
    block: int = 500,
    on_progress: Callable[[int, int], object] | None = None,
) -> Evaluation:
    """Mean loss of ids[1:] under the mixture of model and cache; `block` bounds memory only."""
    device = next(model.parameters()).device
    words, targets = ids[:-1].to(device), ids[1:].to(device)
    model.eval()
    state = model.initial_state(1)
    keys = torch.empty(0, model.backbone.hidden_sizes[-1], device=device, dtype=model.backbone.embedding.dtype)
    total = torch.zeros((), dtype=torch.float64, device=device)
    for start in range(0, len(words), block):
        y = targets[start : start + block]  # (t,)
        scored = model(words[start : start + block, None], y[:, None], state)
        state, queries = scored.hidden.state, scored.hidden.raw[:, 0]  # (t, H)
        first = start - len(keys)  # the position of the oldest key
        keys = torch.cat([keys, queries])  # (W + t, H)

        step = torch.arange(start, start + len(y), device=device)[:, None]  # (t, 1)
        position = torch.arange(first, first + len(keys), device=device)[None, :]  # (1, W + t)
        inside = (position < step) & (position >= step - settings.window)
        scores = (settings.theta * queries @ keys.T).masked_fill(~inside, -torch.inf)
        attention = torch.softmax(scores.double(), dim=1).nan_to_num(0.0)  # an empty cache: no row to normalise
        p_cache = (attention * (targets[position[0]][None, :] == y[:, None])).sum(1)
        p_model = scored.nll[:, 0].double().neg().exp()
        mixed = (1 - settings.lamb) * p_model + settings.lamb * p_cache
        total -= torch.where(inside.any(1), mixed, p_model).log().sum()
        keys = keys[-settings.window :]
        if on_progress:
            on_progress(start + len(y), len(words))
    return Evaluation((total / len(words)).item(), len(words))
