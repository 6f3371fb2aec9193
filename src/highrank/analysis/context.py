"""The text around a step: the context shown to a reader, and the steps whose context contains a phrase.

As in the paper, the context shown is the line so far and the line before it, lengthened where lines are short and cut
where they are long. Shapes: ids (S + 1,); step s predicts ids[s + 1].
"""

import numpy as np
import numpy.typing as npt
from torch import Tensor

from highrank.data.catalog import Level
from highrank.data.corpus import EOS, Corpus
from highrank.data.tokenizer import TextCodec
from highrank.errors import UserError, nearest

Ints = npt.NDArray[np.int64]
MIN_CONTEXT = {"word": 25, "char": 150, "bpe": 35}  # tokens
MAX_CONTEXT = {"word": 80, "char": 480, "bpe": 110}
MAX_CONTINUATION = {"word": 15, "char": 90, "bpe": 20}  # tokens shown after the predicted one


class Surroundings:
    """A split with the line and the context of every step."""

    def __init__(self, ids: Tensor, corpus: Corpus) -> None:
        self.corpus = corpus
        self.ids = ids.numpy()
        self.eos = corpus.words.index(EOS) if EOS in corpus.words else -1  # text8 has no line ends
        self.lines = line_numbers(self.ids, self.eos)  # (S,)
        self.starts = context_starts(self.lines, corpus.level)  # (S,)

    def context(self, step: int) -> list[str]:
        """Return the tokens of the context before the predicted one."""
        return self._words(int(self.starts[step]), step + 1)

    def continuation(self, step: int) -> list[str]:
        """Return the rest of the predicted token's line, cut if it is long."""
        if self.ids[step + 1] == self.eos:
            return []
        limit = MAX_CONTINUATION[self.corpus.level]
        line_ends = np.flatnonzero(self.ids[step + 2 : step + 2 + limit] == self.eos)
        length = int(line_ends[0]) + 1 if len(line_ends) else limit
        return self._words(step + 2, step + 2 + length)

    def _words(self, start: int, stop: int) -> list[str]:
        return [self.corpus.words[i] for i in self.ids[start:stop]]


def line_numbers(ids: Ints, eos: int) -> Ints:
    """Return the line of each step's predicted token, counted from 0; an <eos> belongs to the line it ends."""
    return (ids == eos).cumsum()[:-1]


def context_starts(lines: Ints, level: Level) -> Ints:
    """Return the position where each step's context begins, (S,)."""
    step = np.arange(len(lines))
    previous_line = np.searchsorted(lines, lines - 1)  # the step that predicts the first token of the line before
    start = np.where(previous_line > 0, previous_line + 1, 0)
    start = np.minimum(start, step + 1 - MIN_CONTEXT[level])
    return np.maximum(np.maximum(start, step + 1 - MAX_CONTEXT[level]), 0)


def phrase_ids(phrase: str, corpus: Corpus) -> list[int]:
    """Return the ids of consecutive words (or characters, in a corpus of characters)."""
    index = {word: i for i, word in enumerate(corpus.words)}
    if corpus.tokenizer is not None and phrase.strip():
        # Within a line, the pieces of a BPE include the space before them.
        text = f" {phrase.strip()}" if corpus.level == "bpe" else phrase
        ids, unknown = TextCodec(corpus.words, corpus.level, corpus.tokenizer).encode(text)
    else:
        tokens = phrase.split() if corpus.level == "word" else list(phrase)
        ids = [index[token] for token in tokens if token in index]
        unknown = [token for token in tokens if token not in index]
    for token in unknown:
        if token not in index:  # a tokenizer also reports a written `<unk>`, which can be looked for
            hint = nearest(token, corpus.words, "try another word")
            raise UserError(f'"{token}" is not in the vocabulary of {corpus.name}{hint}')
    if not ids:
        raise UserError("the phrase to look for is empty: give at least one word of the vocabulary.")
    return ids


def phrase_ends(ids: Ints, phrase: list[int]) -> Ints:
    """Return the positions in `ids` where the phrase ends."""
    size = len(ids) - len(phrase) + 1
    if size < 1:
        return np.zeros(0, dtype=np.int64)
    match = np.logical_and.reduce([ids[i : i + size] == word for i, word in enumerate(phrase)])
    return np.flatnonzero(match) + len(phrase) - 1


def steps_with(ids: Ints, phrase: list[int], starts: Ints) -> Ints:
    """Return the steps whose context and predicted token together contain the phrase."""
    last_start = np.full(len(ids), -1, dtype=np.int64)  # where the latest phrase that ends by then begins
    ends = phrase_ends(ids, phrase)
    last_start[ends] = ends - len(phrase) + 1
    last_start = np.maximum.accumulate(last_start)
    return np.flatnonzero(last_start[1:] >= starts)


def join_tokens(tokens: list[str], level: Level) -> str:
    """Write tokens as one line of text."""
    return " ".join(tokens) if level == "word" else "".join("⏎" if t == EOS else t for t in tokens)
