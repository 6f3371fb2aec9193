"""The text around a step: what a reader sees of its context, and which steps have a phrase in it.

Shapes: ids (S + 1,); step s predicts ids[s + 1]. As in the paper, the context shown is the line so far and the line
before it; short lines get more, long ones less.
"""

import difflib

import numpy as np
import numpy.typing as npt
from torch import Tensor

from highrank.data.catalog import Level
from highrank.data.corpus import EOS, Corpus
from highrank.errors import UserError

Ints = npt.NDArray[np.int64]
LEAST_CONTEXT = {"word": 25, "char": 150}  # tokens shown, where the stream has them
MOST_CONTEXT = {"word": 80, "char": 480}
MOST_CONTINUATION = {"word": 15, "char": 90}  # after the word that came


class Surroundings:
    """The stream of a split, with the line and the shown context of every step."""

    def __init__(self, ids: Tensor, corpus: Corpus) -> None:
        self.corpus, self.ids = corpus, ids.numpy()
        self.eos = corpus.words.index(EOS)
        self.lines = line_of(self.ids, self.eos)  # (S,)
        self.starts = context_starts(self.lines, corpus.level)  # (S,)

    def context(self, step: int) -> list[str]:
        return self._words(int(self.starts[step]), step + 1)

    def continuation(self, step: int) -> list[str]:
        """The rest of the predicted word's line, or its beginning where that is long."""
        if self.ids[step + 1] == self.eos:
            return []
        most = MOST_CONTINUATION[self.corpus.level]
        ends = np.flatnonzero(self.ids[step + 2 : step + 2 + most] == self.eos)
        return self._words(step + 2, step + 2 + (int(ends[0]) + 1 if len(ends) else most))

    def _words(self, start: int, stop: int) -> list[str]:
        return [self.corpus.words[i] for i in self.ids[start:stop]]


def line_of(ids: Ints, eos: int) -> Ints:
    """The line of each step's predicted token, counted from 0; a line's end belongs to it."""
    return (ids == eos).cumsum()[:-1]


def context_starts(lines: Ints, level: Level) -> Ints:
    """Where the context that is shown of each step begins, (S,)."""
    step = np.arange(len(lines))
    first = np.searchsorted(lines, lines - 1)  # the first step of the line before: the one that predicts its first word
    start = np.where(first > 0, first + 1, 0)
    start = np.minimum(start, step + 1 - LEAST_CONTEXT[level])
    return np.maximum(np.maximum(start, step + 1 - MOST_CONTEXT[level]), 0)


def phrase_ids(phrase: str, corpus: Corpus) -> list[int]:
    """A word, or several in a row, as ids; a string of characters in a corpus of characters."""
    tokens = phrase.split() if corpus.level == "word" else list(phrase)
    if not tokens:
        raise UserError("--contains is empty: give a word of the vocabulary.")
    index = {word: i for i, word in enumerate(corpus.words)}
    for token in tokens:
        if token not in index:
            close = difflib.get_close_matches(token, corpus.words, n=1, cutoff=0.6)
            hint = f' (did you mean "{close[0]}"?)' if close else ""
            raise UserError(
                f'"{token}" is not in the vocabulary of {corpus.name}{hint}: '
                "--contains takes words of it, spelt as in its text."
            )
    return [index[token] for token in tokens]


def phrase_ends(ids: Ints, phrase: list[int]) -> Ints:
    """Where in `ids` the phrase ends, each time it occurs."""
    size = len(ids) - len(phrase) + 1
    if size < 1:
        return np.zeros(0, dtype=np.int64)
    match = np.logical_and.reduce([ids[i : i + size] == word for i, word in enumerate(phrase)])
    return np.flatnonzero(match) + len(phrase) - 1


def steps_with(ids: Ints, phrase: list[int], starts: Ints) -> Ints:
    """The steps whose shown context, or whose word, has the phrase."""
    last_start = np.full(len(ids), -1, dtype=np.int64)  # of the latest phrase that has ended by then
    ends = phrase_ends(ids, phrase)
    last_start[ends] = ends - len(phrase) + 1
    last_start = np.maximum.accumulate(last_start)
    return np.flatnonzero(last_start[1:] >= starts)


def spelt(tokens: list[str], level: Level) -> str:
    """Tokens as text, on one line."""
    return " ".join(tokens) if level == "word" else "".join("⏎" if t == EOS else t for t in tokens)
