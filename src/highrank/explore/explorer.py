"""What a model predicts at every position of a text, and how it continues one.

Position i of a text is its i-th token, predicted from all tokens before it; the position after the last token predicts
what comes next. For a mixture, p(x) = sum_k pi_k p_k(x), and r_k = pi_k p_k(x) / p(x) is the responsibility of
component k.

Shapes: n positions, K components, V vocabulary.
"""

import math
import threading
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from highrank.analysis.prediction import Candidate
from highrank.evaluation.beam import beam_search
from highrank.evaluation.generate import sample_word
from highrank.explore.model import ExplorableModel, Softmaxes, Token, added_texts
from highrank.explore.prefixes import PrefixCache

MAX_SCORES = 50_000  # kept tokens: about 30 MB for a mixture of 15
TOP = 10  # words shown of the mixture
COMPONENT_TOP = 6  # words shown per component
CHUNK = 8  # positions per product with the output embedding


@dataclass(frozen=True)
class Score:
    """How well a token of the text was predicted."""

    nll: float  # nats
    rank: int  # 1: the most probable token
    responsibilities: list[float]  # (K,)


@dataclass(frozen=True)
class MixedWord:
    word: str
    p: float
    rank: int
    parts: list[float]  # (K,) pi_k p_k(word), which sum to p


@dataclass(frozen=True)
class MixtureComponent:
    weight: float  # pi_k
    top: list[Candidate]  # by p_k


@dataclass(frozen=True)
class CursorPrediction:
    """The distribution at one position."""

    position: int
    actual: MixedWord | None  # the token of the text; None after its end
    top: list[MixedWord]
    components: list[MixtureComponent]  # in the order of the model, not by weight


@dataclass(frozen=True)
class TextReading:
    """A text as a model sees it."""

    tokens: list[Token]
    words: list[str]  # what the model reads for each token: itself or <unk>; "" if it skips it
    scores: list[Score | None]  # None: skipped, or not read yet
    complete: bool  # everything was read
    prediction: CursorPrediction | None  # at the cursor; None if it was not reached yet


@dataclass(frozen=True)
class Sampled:
    text: str  # to append to what comes before, with the space between words
    word: str
    p: float
    component: int  # that it was drawn from, or that is most responsible for it in a beam, from 0 to K - 1


@dataclass(frozen=True)
class BeamContinuation:
    log_prob: float
    words: list[Sampled]


class Explorer:
    """One model and what it has computed so far. Its methods may be called from several threads."""

    def __init__(self, model: ExplorableModel) -> None:
        self.model = model
        self._scores: PrefixCache[Score] = PrefixCache(MAX_SCORES)
        self._lock = threading.RLock()

    @torch.no_grad()
    def read(self, text: str, cursor: int, *, seconds: float = math.inf) -> TextReading:
        """Score a text's tokens and predict at the cursor; stop after about `seconds`, but not before one chunk."""
        tokens = self.model.tokens(text)
        position = self._position(tokens, cursor)
        ids = [token.id for token in tokens if token.id is not None]
        context = self._context(tokens[:position])
        with self._lock:
            scores = self._score(ids, seconds)
            prediction = None
            if len(context) <= len(scores) + 1:
                actual = tokens[position].id if position < len(tokens) else None
                prediction = self._predict(context, position, actual)
        remaining = iter(scores)
        return TextReading(
            tokens,
            ["" if token.id is None else self.model.words[token.id] for token in tokens],
            [None if token.id is None else next(remaining, None) for token in tokens],
            len(scores) == len(ids),
            prediction,
        )

    def _score(self, ids: list[int], seconds: float) -> list[Score]:
        """Score the tokens of a text from its start, as many as `seconds` allow."""
        deadline = time.monotonic() + seconds
        known = self._scores.known(ids)
        new: list[Score] = []
        for first in range(len(known), len(ids), CHUNK):
            targets = ids[first : first + CHUNK]
            softmaxes = self.model.softmaxes([self.model.start, *ids[: first + len(targets) - 1]], first)
            new += score(softmaxes, torch.tensor(targets))
            if time.monotonic() > deadline:
                break
        self._scores.extend(ids, known, new)
        return known + new

    @torch.no_grad()
    def mixture(self, ids: list[int]) -> tuple[Tensor, Tensor]:
        """Return the weights pi (n, K) and the responsibilities (n, K) at the tokens of a text."""
        weights = []
        responsibilities = []
        for first in range(0, len(ids), CHUNK):
            targets = ids[first : first + CHUNK]
            with self._lock:  # chunk by chunk, so that others need not wait for the whole text
                softmaxes = self.model.softmaxes([self.model.start, *ids[: first + len(targets) - 1]], first)
            weights.append(softmaxes.log_pi.exp().cpu())
            responsibilities += [s.responsibilities for s in score(softmaxes, torch.tensor(targets))]
        return torch.cat(weights), torch.tensor(responsibilities)

    def _position(self, tokens: list[Token], cursor: int) -> int:
        """Return the position of the word that the cursor is in or at the end of, or of the token after it."""
        for i, token in enumerate(tokens):
            at_end = token.end == cursor and self.model.by_word and token.id != self.model.eos
            if token.end > cursor or at_end:
                return i
        return len(tokens)

    def _predict(self, context: list[int], position: int, actual: int | None) -> CursorPrediction:
        """Describe the distribution after a context, for the token `actual` at that position of the text."""
        words = self.model.words
        log_pi, log_parts = self._next(context)
        log_p = log_parts.logsumexp(0)  # (V,)

        def mixed_word(i: int) -> MixedWord:
            rank = int((log_p > log_p[i]).sum()) + 1
            return MixedWord(words[i], log_p[i].exp().item(), rank, log_parts[:, i].exp().tolist())

        components = []
        for k, weight in enumerate(log_pi.exp().tolist()):
            best = (log_parts[k] - log_pi[k]).exp().topk(min(COMPONENT_TOP, len(log_p)))
            pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            components.append(MixtureComponent(weight, [Candidate(words[i], p) for i, p in pairs]))
        return CursorPrediction(
            position,
            None if actual is None else mixed_word(actual),
            [mixed_word(i) for i in log_p.topk(min(TOP, len(log_p))).indices.tolist()],
            components,
        )

    def _next(self, context: list[int]) -> tuple[Tensor, Tensor]:
        """Return log pi (K,) and log pi_k p_k (K, V) of the token after a context."""
        with self._lock:
            log_pi, logits = self.model.softmaxes(context, len(context) - 1)
        return log_pi[0].cpu(), (log_pi[0, :, None] + logits[0].log_softmax(-1)).cpu()

    @torch.no_grad()
    def sample(
        self, text: str, length: int, *, temperature: float = 1.0, top_p: float | None = None, seed: int = 0
    ) -> list[Sampled]:
        """Continue a text by sampling.

        Each word's component is drawn from its responsibilities: at temperature 1 without top-p this is the same as
        drawing a component from pi and then a word from p_k.
        """
        generator = torch.Generator().manual_seed(seed)
        context = self._context(self.model.tokens(text))
        drawn = []
        for _ in range(length):
            _, log_parts = self._next(context)
            log_p = log_parts.logsumexp(0)
            word = int(sample_word(log_p, temperature, None, top_p, generator))
            component = int(torch.multinomial(log_parts[:, word].softmax(0), 1, generator=generator))
            drawn.append((word, log_p[word].exp().item(), component))
            context.append(word)
        return self._written(text, drawn)

    @torch.no_grad()
    def search(self, text: str, length: int, beam_size: int) -> list[BeamContinuation]:
        """Return the likeliest continuations that a beam search finds, up to the end of the line if there are lines."""
        context = self._context(self.model.tokens(text))
        found = beam_search(
            _Steps(self),
            torch.tensor(context[-1:]),
            [context[:-1]],
            eos=self.model.eos,
            beam_size=beam_size,
            n_best=beam_size,
            max_length=length,
        )
        continuations = []
        for words, log_prob in zip(found.to_lists()[0], found.log_prob[:, 0].tolist(), strict=False):
            chosen = []
            for n, word in enumerate(words):
                _, log_parts = self._next([*context, *words[:n]])
                parts = log_parts[:, word].exp()
                chosen.append((word, parts.sum().item(), int(parts.argmax())))
            continuations.append(BeamContinuation(log_prob, self._written(text, chosen)))
        return continuations

    def _context(self, tokens: list[Token]) -> list[int]:
        return [self.model.start, *(token.id for token in tokens if token.id is not None)]

    def _written(self, text: str, chosen: list[tuple[int, float, int]]) -> list[Sampled]:
        texts = added_texts(self.model, [word for word, _, _ in chosen], text)
        return [
            Sampled(part, self.model.words[word], p, component)
            for part, (word, p, component) in zip(texts, chosen, strict=True)
        ]


class _Steps:
    """The interface that `beam_search` expects; the state of a hypothesis is its ids."""

    training = False

    def __init__(self, explorer: Explorer) -> None:
        self.explorer = explorer

    def step(self, words: Tensor, state: list[list[int]]) -> tuple[Tensor, list[list[int]]]:
        """Read one word per row, (N,); return log-probabilities of the next, (N, V), and the new state."""
        state = [[*ids, word] for ids, word in zip(state, words.tolist(), strict=True)]
        return torch.stack([self.explorer._next(ids)[1].logsumexp(0) for ids in state]), state

    def select_rows(self, state: list[list[int]], rows: Tensor) -> list[list[int]]:
        """Return the state whose row i is row rows[i] of `state`."""
        return [state[row] for row in rows.tolist()]


def score(softmaxes: Softmaxes, targets: Tensor) -> list[Score]:
    """Score targets (n,) under the mixture of n softmaxes."""
    log_pi, logits = softmaxes
    targets = targets.to(logits.device)
    # log pi_k - log sum_x exp z_kx: added to the logits it gives log pi_k p_k
    offset = log_pi - logits.logsumexp(-1)  # (n, K)
    log_parts = offset + logits.gather(-1, targets[:, None, None].expand(-1, logits.shape[1], 1))[..., 0]
    nll = -log_parts.logsumexp(-1)  # (n,)
    p = (logits + offset[..., None]).exp_().sum(1)  # (n, V)
    ranks = (p > p.gather(1, targets[:, None])).sum(1) + 1
    responsibilities = (log_parts + nll[:, None]).exp()
    rows = zip(nll.tolist(), ranks.tolist(), responsibilities.tolist(), strict=True)
    return [Score(*row) for row in rows]
