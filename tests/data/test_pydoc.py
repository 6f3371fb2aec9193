import sys
import types

import pytest
import torch

from highrank.data.corpus import EOS, load_corpus
from highrank.data.pydoc import UNK
from highrank.errors import UserError


def test_the_corpus_of_this_python_is_large_enough():
    corpus = load_corpus("pydoc")
    assert {EOS, UNK} <= set(corpus.words)
    assert len(corpus.splits["train"]) > 50_000
    assert min(len(corpus.splits[s]) for s in ("valid", "test")) > 3_000
    everything = torch.cat(list(corpus.splits.values()))
    assert everything.bincount().min() == 3  # rarer words are <unk>
    assert load_corpus("pydoc").fingerprint == corpus.fingerprint


def test_topics_are_tokenised_and_dealt_to_the_splits_by_size(monkeypatch):
    topics = {f"topic {i}": "The cat, the Cat\n\n>>> f(10) == 'a_b'\n" for i in range(10)}
    topics["topic 7"] += "once twice twice thrice thrice thrice\n"  # the longest topic comes first
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", types.SimpleNamespace(topics=topics))
    corpus = load_corpus("pydoc")
    read = {split: " ".join(corpus.words[i] for i in ids) for split, ids in corpus.splits.items()}
    topic = f"the cat , the cat {EOS} >>> f ( 10 ) == ' a_b ' {EOS}"
    first = f"{topic} {UNK} {UNK} {UNK} thrice thrice thrice {EOS}"
    assert read == {"train": " ".join([first] + [topic] * 7), "valid": topic, "test": topic}


def test_a_python_without_its_topics_is_a_user_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(UserError, match="pydoc_data"):
        load_corpus("pydoc")


def test_the_corpus_has_words_only():
    with pytest.raises(UserError, match=r"data\.level"):
        load_corpus("pydoc", level="char")
