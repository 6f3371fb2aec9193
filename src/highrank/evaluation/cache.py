"""The continuous cache pointer (Grave et al. 2016): words that followed similar hidden states become likelier again.

    p_cache(w) ∝ sum over i < t, i >= t - window, with x_(i+1) = w, of exp(theta h_t . h_i)
    p(w) = (1 - lambda) p_model(w) + lambda p_cache(w)

h are the raw hidden states of the last layer. The first prediction has an empty cache and is the model's alone.

Shapes: T tokens of one stream, W a window, H hidden units, P pairs of a window and a theta; a block of t steps scores
(t, W + t) pairs of states.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from highrank.evaluation.mode import in_eval_mode
from highrank.evaluation.perplexity import Evaluation
from highrank.models.language_model import LanguageModel
from highrank.progress import OnProgress
from highrank.recipes.recipe import CacheSettings


class Block(NamedTuple):
    """Some consecutive steps of the model through a text: all that the cache needs to know of them."""

    states: Tensor  # (t, H) raw
    targets: Tensor  # (t,) the words that came
    p_model: Tensor  # (t,) what the model gave to them, in float64


class Probabilities(NamedTuple):
    """What model and cache give to each word that came, in float64."""

    model: Tensor  # (T - 1,)
    cache: Tensor  # (P, T - 1)


@torch.no_grad()
@in_eval_mode
def cache_evaluate(
    model: LanguageModel,
    ids: Tensor,  # (T,)
    settings: CacheSettings,
    *,
    block: int = 500,
    on_progress: OnProgress | None = None,
) -> Evaluation:
    """Mean loss of ids[1:] under the mixture of model and cache; `block` bounds memory only."""
    blocks = _read(model, ids, block, on_progress)
    p = cache_probabilities(blocks, [(min(settings.window, len(ids)), settings.theta)])
    return Evaluation(mixed_nll(p.model, p.cache[0], settings.lamb), len(ids) - 1)


def mixed_nll(p_model: Tensor, p_cache: Tensor, lamb: float) -> float:
    """Mean loss of the mixture, where there is something to mix in: the first step remembers nothing."""
    mixed = (1 - lamb) * p_model + lamb * p_cache
    mixed[0] = p_model[0]
    return -mixed.log().mean().item()


@torch.no_grad()
@in_eval_mode
def read_once(
    model: LanguageModel, ids: Tensor, *, block: int = 500, on_progress: OnProgress | None = None
) -> list[Block]:
    """The model's part of the work, for who wants to try many settings: keeps T x H numbers."""
    return list(_read(model, ids, block, on_progress))


def _read(model: LanguageModel, ids: Tensor, block: int, on_progress: OnProgress | None) -> Iterator[Block]:
    device = next(model.parameters()).device
    words, targets = ids[:-1].to(device), ids[1:].to(device)
    state = model.initial_state(1)
    for start in range(0, len(words), block):
        rows = slice(start, start + block)
        scored = model(words[rows, None], targets[rows, None], state)
        state = scored.hidden.state
        yield Block(scored.hidden.raw[:, 0], targets[rows], scored.nll[:, 0].double().neg().exp())
        if on_progress:
            on_progress(min(start + block, len(words)), len(words))


@torch.no_grad()
def cache_probabilities(blocks: Iterable[Block], pairs: Sequence[tuple[int, float]]) -> Probabilities:
    """What each pair of a window and a theta gives to the words that came."""
    longest = max(window for window, _ in pairs)
    keys, followers = None, None  # of the last steps, as many as the longest window
    p_model, p_cache = [], []
    for states, targets, p in blocks:
        t = len(states)
        keys = states if keys is None else torch.cat([keys, states])  # (W + t, H)
        followers = targets if followers is None else torch.cat([followers, targets])  # (W + t,)
        similarity = states @ keys.T  # (t, W + t)
        same = followers == targets[:, None]
        position = torch.arange(len(keys), device=keys.device)
        age = position[-t:, None] - position  # (t, W + t) steps ago
        given = []
        for window, theta in pairs:
            near = slice(max(0, len(keys) - t - window), None)  # older ones are beyond this window
            outside = (age[:, near] <= 0) | (age[:, near] > window)
            scores = (theta * similarity[:, near]).masked_fill(outside, -torch.inf)
            attention = torch.softmax(scores.double(), dim=1).nan_to_num(0.0)  # NaN: nothing remembered yet
            given.append((attention * same[:, near]).sum(1))
        p_model.append(p)
        p_cache.append(torch.stack(given))
        keys, followers = keys[-longest:], followers[-longest:]
    return Probabilities(torch.cat(p_model), torch.cat(p_cache, dim=1))
