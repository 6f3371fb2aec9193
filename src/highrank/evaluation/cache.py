"""The continuous cache (Grave et al. 2016): words that followed similar hidden states recently become more likely.

    p_cache(w) ∝ sum over i < t, i >= t - window, with x_(i+1) = w, of exp(theta h_t . h_i)
    p(w) = (1 - lambda) p_model(w) + lambda p_cache(w)

h are the hidden states of the last layer, before dropout. The first prediction comes from the model alone, because the
cache is still empty.

Shapes: T tokens of one stream, W the window, H hidden units, P pairs of a window and a theta. A block of t steps
computes (t, W + t) similarities.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from highrank.evaluation.perplexity import Evaluation, in_eval_mode
from highrank.models.language_model import LanguageModel
from highrank.progress import OnProgress, no_progress
from highrank.recipes.recipe import CacheSettings


class Block(NamedTuple):
    """Consecutive steps of the model through a text: the inputs of the cache."""

    states: Tensor  # (t, H)
    targets: Tensor  # (t,) the words that followed
    p_model: Tensor  # (t,) the model's probabilities of the targets, in float64


@torch.no_grad()
@in_eval_mode
def cache_evaluate(
    model: LanguageModel,
    ids: Tensor,  # (T,)
    settings: CacheSettings,
    *,
    block: int = 500,
    on_progress: OnProgress = no_progress,
) -> Evaluation:
    """Compute the losses of ids[1:] under the mixture of model and cache.

    `block` is the number of steps per forward pass; it bounds memory and does not change the result.
    """
    blocks = read_blocks(model, ids, block, on_progress)
    p_model, p_cache = cache_probabilities(blocks, [(min(settings.window, len(ids)), settings.theta)])
    return Evaluation(mixed_losses(p_model, p_cache[0], settings.lamb))


def mixed_losses(p_model: Tensor, p_cache: Tensor, lamb: float) -> Tensor:
    """Compute the losses of the mixture; the first prediction is the model's, because the cache is empty there."""
    mixed = (1 - lamb) * p_model + lamb * p_cache
    mixed[0] = p_model[0]
    return -mixed.log()


def read_blocks(
    model: LanguageModel, ids: Tensor, block: int = 500, on_progress: OnProgress = no_progress
) -> Iterator[Block]:
    """Run the model over a text, `block` steps at a time. The caller switches to evaluation mode."""
    device = next(model.parameters()).device
    words = ids[:-1].to(device)
    targets = ids[1:].to(device)
    state = model.initial_state(1)
    for start in range(0, len(words), block):
        rows = slice(start, start + block)
        scored = model(words[rows, None], targets[rows, None], state)
        state = scored.hidden.state
        yield Block(scored.hidden.raw[:, 0], targets[rows], scored.nll[:, 0].double().neg().exp())
        on_progress(min(start + block, len(words)), len(words))


@torch.no_grad()
def cache_probabilities(blocks: Iterable[Block], pairs: Sequence[tuple[int, float]]) -> tuple[Tensor, Tensor]:
    """Compute the targets' probabilities in float64: the model's, (T - 1,), and the cache's per pair, (P, T - 1)."""
    longest = max(window for window, _ in pairs)
    keys, followers = None, None  # states and the words after them, for the last `longest` steps
    p_model, p_cache = [], []
    for states, targets, p in blocks:
        t = len(states)
        keys = states if keys is None else torch.cat([keys, states])  # (W + t, H)
        followers = targets if followers is None else torch.cat([followers, targets])  # (W + t,)
        similarity = states @ keys.T  # (t, W + t)
        same = followers == targets[:, None]
        position = torch.arange(len(keys), device=keys.device)
        age = position[-t:, None] - position  # (t, W + t), in steps
        by_pair = []
        for window, theta in pairs:
            near = slice(max(0, len(keys) - t - window), None)  # older keys lie outside this window for every row
            outside = (age[:, near] <= 0) | (age[:, near] > window)
            scores = (theta * similarity[:, near]).masked_fill(outside, -torch.inf)
            attention = torch.softmax(scores.double(), dim=1).nan_to_num(0.0)  # NaN where the cache is empty
            by_pair.append((attention * same[:, near]).sum(1))
        p_model.append(p)
        p_cache.append(torch.stack(by_pair))
        keys = keys[-longest:]
        followers = followers[-longest:]
    return torch.cat(p_model), torch.cat(p_cache, dim=1)
