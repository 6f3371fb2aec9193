"""Decoding with any model that predicts one word at a time: beam search and sampling, for many contexts at once.

A hypothesis ends with <eos>, or after `max_length` words without it. These are all possible outcomes, so their
probabilities sum to one. Beam search ranks them by

    score = log-probability / tokens^length_penalty          tokens: the words, and <eos> if the hypothesis has it

With a penalty of 0 the score is the log-probability, which favours short hypotheses; with 1 it is the mean per token.

Shapes: W hypotheses per context (the beam), B contexts, V vocabulary, L the maximum length. Hypotheses are rows of the
model's batch: row w * B + b is hypothesis w of context b.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

State = TypeVar("State")


class StepModel(Protocol[State]):
    """A model that predicts one word at a time, from a state with one row per hypothesis."""

    training: bool  # as in nn.Module

    def step(self, words: Tensor, state: State) -> tuple[Tensor, State]:
        """Read one word per row, (N,); return log-probabilities of the next, (N, V), and the new state."""

    def select_rows(self, state: State, rows: Tensor) -> State:
        """Return the state whose row i is row rows[i] of `state`."""


class Hypotheses(NamedTuple):
    """The best hypotheses of each context, best first. If there are fewer than n, the rest have a score of -inf."""

    words: Tensor  # (n, B, L) ids, without <eos>; entries from `lengths` on have no meaning
    lengths: Tensor  # (n, B) words
    log_prob: Tensor  # (n, B), including <eos>
    score: Tensor  # (n, B)

    def to_lists(self) -> list[list[list[int]]]:
        """Return the word ids of every hypothesis with a finite score, by context."""
        words = self.words.tolist()
        lengths = self.lengths.tolist()
        finite = self.score.isfinite().tolist()
        n, n_contexts = self.lengths.shape
        return [[words[i][b][: lengths[i][b]] for i in range(n) if finite[i][b]] for b in range(n_contexts)]


@torch.no_grad()
def beam_search(
    model: StepModel[State],
    words: Tensor,  # (B,) the word before the first one to predict, such as <bos>
    state: State,  # of B rows
    *,
    eos: int | None,
    beam_size: int = 10,
    n_best: int = 5,
    max_length: int = 30,
    length_penalty: float = 0.0,
    forbidden: Sequence[int] = (),  # words that no hypothesis may contain, such as <unk>
) -> Hypotheses:
    """Return the `n_best` hypotheses per context that a beam of `beam_size` finds.

    Without an `eos`, every hypothesis has `max_length` words.
    Hypotheses that end leave the beam, so all W places belong to prefixes that go on. The search is exact if the beam
    holds every prefix. It stops early once no prefix can still lead to one of the `n_best`, in any context.
    """
    _check_mode(model)
    n_contexts = len(words)
    context = torch.arange(n_contexts, device=words.device)
    state = model.select_rows(state, context.repeat(beam_size))
    last = words.repeat(beam_size)  # (W B,)
    prefixes = words.new_zeros(beam_size, n_contexts, max_length)
    log_prob = torch.full((beam_size, n_contexts), -torch.inf, device=words.device)
    log_prob[0] = 0.0  # all rows start equal: extending more than one would find every hypothesis several times
    excluded = torch.tensor(forbidden, dtype=torch.int64, device=words.device)
    best = Hypotheses(
        words.new_zeros(n_best, n_contexts, max_length),
        words.new_zeros(n_best, n_contexts),
        log_prob.new_full((n_best, n_contexts), -torch.inf),
        log_prob.new_full((n_best, n_contexts), -torch.inf),
    )
    for length in range(max_length):
        next_log_p, state = model.step(last, state)
        total = log_prob[..., None] + next_log_p.view(beam_size, n_contexts, -1)  # (W, B, V)
        total.index_fill_(-1, excluded, -torch.inf)
        if eos is not None:
            best = _merge(best, prefixes, length, total[..., eos], (length + 1) ** length_penalty)
            total[..., eos] = -torch.inf

        # The W best of all W V continuations are among the W best of each row.
        per_row = min(beam_size, total.shape[-1])
        row_log_p, row_words = total.topk(per_row, dim=-1)  # (W, B, per_row)
        log_prob, index = row_log_p.movedim(0, 1).flatten(1).topk(beam_size, dim=1)  # (B, W)
        log_prob = log_prob.t()
        origin = (index // per_row).t()  # (W, B): which prefix goes on
        next_words = row_words.movedim(0, 1).flatten(1).gather(1, index).t()  # (W, B)
        prefixes = _take(prefixes, origin)
        prefixes[..., length] = next_words
        last = next_words.flatten()
        state = model.select_rows(state, (origin * n_contexts + context).flatten())

        # Log-probabilities only fall, and the penalty's divisor is largest at max_length.
        bound = log_prob[0] / max_length**length_penalty  # (B,)
        if bool((best.score[-1] >= bound).all()):
            return best
    return _merge(best, prefixes, max_length, log_prob, max_length**length_penalty)


@torch.no_grad()
def sample(
    model: StepModel[State],
    words: Tensor,  # (B,)
    state: State,  # of B rows
    *,
    eos: int,
    n_samples: int = 1,
    max_length: int = 30,
    temperature: float = 1.0,
    forbidden: Sequence[int] = (),
    generator: torch.Generator | None = None,
) -> Hypotheses:
    """Draw `n_samples` hypotheses per context, in no particular order.

    `temperature` and `forbidden` change the distribution that words are drawn from; `log_prob` and `score` are always
    the model's.
    """
    _check_mode(model)
    state = model.select_rows(state, torch.arange(len(words), device=words.device).repeat(n_samples))
    last = words.repeat(n_samples)
    drawn = words.new_zeros(len(last), max_length)
    lengths = torch.full_like(last, max_length)
    log_prob = torch.zeros(len(last), device=words.device)
    excluded = torch.tensor(forbidden, dtype=torch.int64, device=words.device)
    for length in range(max_length):
        log_p, state = model.step(last, state)
        allowed = log_p.index_fill(-1, excluded, -torch.inf)
        last = torch.multinomial(torch.softmax(allowed / temperature, dim=-1), 1, generator=generator)[:, 0]
        running = lengths == max_length
        log_prob = log_prob + torch.where(running, log_p.gather(1, last[:, None])[:, 0], 0.0)
        lengths = torch.where(running & (last == eos), length, lengths)
        drawn[:, length] = last
        if not bool((lengths == max_length).any()):
            break
    shape = (n_samples, len(words))
    log_prob = log_prob.view(shape)
    return Hypotheses(drawn.view(*shape, max_length), lengths.view(shape), log_prob, log_prob)


def _check_mode(model: StepModel[State]) -> None:
    if model.training:
        raise ValueError("the model is in training mode, so dropout would act; call model.eval() first")


def _merge(best: Hypotheses, words: Tensor, length: int, log_prob: Tensor, divisor: float) -> Hypotheses:
    """Return the best of `best` and of W hypotheses per context that end with `length` words."""
    score = torch.cat([best.score, log_prob / divisor])  # (n + W, B)
    score, index = score.topk(len(best.score), dim=0)
    return Hypotheses(
        _take(torch.cat([best.words, words]), index),
        torch.cat([best.lengths, torch.full_like(words[..., 0], length)]).gather(0, index),
        torch.cat([best.log_prob, log_prob]).gather(0, index),
        score,
    )


def _take(words: Tensor, index: Tensor) -> Tensor:
    """Return the words of the hypotheses with these indices: (W, B, L), (n, B) -> (n, B, L)."""
    return words.gather(0, index[..., None].expand(-1, -1, words.shape[-1]))
