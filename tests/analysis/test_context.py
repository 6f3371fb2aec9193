"""The text around a step, on a stream small enough to check by eye and by brute force."""

import numpy as np
import pytest
import torch

from highrank.analysis import context as module
from highrank.analysis.context import Surroundings, join_tokens, phrase_ends, phrase_ids, steps_with
from highrank.data.catalog import UNK
from highrank.data.corpus import EOS, Corpus, number_tokens, read_corpus
from highrank.data.own_text import make_corpus
from highrank.errors import UserError

LINES = "a b c|d e|f g h i|a b|j k a"


@pytest.fixture
def corpus():
    tokens = [token for line in LINES.split("|") for token in (*line.split(), EOS)]
    words, splits = number_tokens({"train": tokens, "valid": tokens, "test": tokens})
    return Corpus("toy", "word", words, splits, "x")


@pytest.fixture
def around(corpus, monkeypatch):
    monkeypatch.setattr(module, "MIN_CONTEXT", {"word": 2})
    monkeypatch.setattr(module, "MAX_CONTEXT", {"word": 5})
    monkeypatch.setattr(module, "MAX_CONTINUATION", {"word": 3})
    return Surroundings(corpus.splits["test"], corpus)


def step_before(around, word, which=0):
    """Return the step that predicts `word`."""
    return int(np.flatnonzero(around.ids == around.corpus.words.index(word))[which]) - 1


def test_context_is_the_line_so_far_and_the_line_before(around):
    assert around.context(0) == ["a"]
    assert around.context(step_before(around, "d")) == ["a", "b", "c", EOS]
    assert around.context(step_before(around, "f")) == ["d", "e", EOS]
    assert around.context(step_before(around, "g")) == ["d", "e", EOS, "f"]
    assert around.context(step_before(around, "i")) == ["e", EOS, "f", "g", "h"]  # at most five
    assert len(around.context(len(around.lines) - 1)) == 5


def test_short_lines_get_a_longer_context(around, monkeypatch):
    monkeypatch.setattr(module, "MIN_CONTEXT", {"word": 4})
    wide = Surroundings(torch.from_numpy(around.ids), around.corpus)
    assert wide.context(step_before(wide, "f")) == [EOS, "d", "e", EOS]


def test_continuation_is_the_rest_of_the_line(around):
    assert around.continuation(step_before(around, "d")) == ["e", EOS]
    assert around.continuation(step_before(around, "f")) == ["g", "h", "i"]
    assert around.continuation(step_before(around, "i")) == [EOS]
    assert around.continuation(step_before(around, EOS)) == []
    assert around.continuation(len(around.lines) - 1) == []


def test_a_line_number_counts_the_line_ends_before(around):
    assert around.lines[step_before(around, "c")] == around.lines[step_before(around, EOS)] == 0
    assert around.lines[step_before(around, "d")] == 1
    assert around.lines.max() == 4


@pytest.mark.parametrize("phrase", ["a", "b", "a b", "k a", EOS, "e <eos> f", "b a"])
def test_steps_with_a_phrase_are_those_whose_context_contains_it(around, phrase):
    wanted = f" {phrase} "
    shown = [
        s
        for s in range(len(around.lines))
        if wanted in " " + " ".join([*around.context(s), around.corpus.words[around.ids[s + 1]]]) + " "
    ]
    assert steps_with(around.ids, phrase_ids(phrase, around.corpus), around.starts).tolist() == shown
    assert bool(shown) == (phrase != "b a")


def test_phrase_ends_finds_every_occurrence():
    ids = np.array([1, 2, 1, 2, 3])
    assert phrase_ends(ids, [1, 2]).tolist() == [1, 3]
    assert phrase_ends(ids, [3]).tolist() == [4]
    assert phrase_ends(ids, [1, 2, 1, 2, 3, 1]).tolist() == []


def test_unknown_words_raise_and_name_the_nearest():
    words, splits = number_tokens({"train": ["market", "share", EOS]})
    corpus = Corpus("toy", "word", words, splits, "x")
    with pytest.raises(UserError, match="market"):
        phrase_ids("markt", corpus)
    with pytest.raises(UserError, match="zzz"):
        phrase_ids("share zzz", corpus)
    with pytest.raises(UserError):
        phrase_ids(" ", corpus)


def test_words_unknown_to_a_tokenizer_raise(tmp_path):
    (tmp_path / "text.txt").write_text("market share rises\n" * 40)
    make_corpus([tmp_path / "text.txt"], tmp_path / "corpus")
    corpus = read_corpus(tmp_path / "corpus")
    with pytest.raises(UserError, match="market"):
        phrase_ids("share markt", corpus)
    assert [corpus.words[i] for i in phrase_ids(f"share {UNK}", corpus)] == ["share", UNK]


def test_characters_are_joined_without_spaces():
    words, splits = number_tokens({"train": [*"ab c", EOS]})
    corpus = Corpus("toy", "char", words, splits, "x")
    assert phrase_ids("b c", corpus) == [1, 2, 3]
    assert join_tokens(["a", " ", EOS, "b"], "char") == "a ⏎b"
    assert join_tokens(["a", EOS, "b"], "word") == "a <eos> b"
