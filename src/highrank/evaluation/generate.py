"""Continuing a text: by sampling (temperature, top-k, nucleus), reproducible by seed, or by beam search."""

from collections.abc import Iterator

import torch
from torch import Tensor

from highrank.evaluation.beam import Hypotheses, beam_search
from highrank.evaluation.perplexity import in_eval_mode
from highrank.models.language_model import LanguageModel

# Evaluation mode lasts for one step only, so the caller may train between two words of the stream.
_log_prob = in_eval_mode(LanguageModel.log_prob)


@torch.no_grad()
def generate(
    model: LanguageModel,
    prompt: Tensor,  # (T,) ids, at least one
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Iterator[int]:
    """Yield ids that continue `prompt`, without end. Temperature 0 always takes the likeliest word."""
    if temperature < 0 or (top_k is not None and top_k < 1) or not 0 < (1.0 if top_p is None else top_p) <= 1:
        raise ValueError(f"impossible sampling: temperature={temperature}, top_k={top_k}, top_p={top_p}")
    log_p, state = _log_prob(model, prompt[:, None], model.initial_state(1))
    while True:
        word = sample_word(log_p[-1, 0].float(), temperature, top_k, top_p, generator)
        yield int(word)
        log_p, state = _log_prob(model, word.view(1, 1), state)


@torch.no_grad()
@in_eval_mode
def continue_by_beam(
    model: LanguageModel,
    prompt: Tensor,  # (T,) ids, at least one
    *,
    eos: int | None,
    beam_size: int,
    max_length: int,
) -> Hypotheses:
    """Return the `beam_size` likeliest continuations of `prompt` that a beam search finds, up to <eos> if given."""
    state = model.initial_state(1)
    if len(prompt) > 1:
        _, state = model.log_prob(prompt[:-1, None], state)
    return beam_search(model, prompt[-1:], state, eos=eos, beam_size=beam_size, n_best=beam_size, max_length=max_length)


def sample_word(
    log_p: Tensor,  # (V,)
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    generator: torch.Generator | None,
) -> Tensor:
    """Sample one word after applying temperature, then top-k, then top-p."""
    if temperature == 0:
        return log_p.argmax()
    # A mixture has no logits. Scaling log-probabilities gives the same distribution as scaling logits would.
    log_p = log_p / temperature
    if top_k is not None:
        kth = log_p.topk(min(top_k, len(log_p))).values[-1]
        log_p = log_p.masked_fill(log_p < kth, -torch.inf)
    if top_p is not None:
        ordered, order = log_p.sort(descending=True)
        p = ordered.softmax(-1)
        beyond = p.cumsum(-1) - p >= top_p  # keeps the word that reaches top_p, and so at least one word
        log_p[order[beyond]] = -torch.inf
    return torch.multinomial(log_p.softmax(-1).cpu(), 1, generator=generator)[0].to(log_p.device)
