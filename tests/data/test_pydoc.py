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


def read_splits(topics, monkeypatch):
    """Return the text of each split of a corpus with these topics."""
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", types.SimpleNamespace(topics=topics))
    corpus = load_corpus("pydoc")
    return {split: " ".join(corpus.words[i] for i in ids) for split, ids in corpus.splits.items()}


def test_topics_are_tokenised_and_dealt_to_the_splits_by_size(monkeypatch):
    topics = {f"topic {i}": f"The cat, {i} the Cat\n\n>>> f(10) == 'a_b'[{i}]\n" for i in range(8)}
    topics["topic 7"] += "once twice twice thrice thrice thrice\n"  # the longest topic comes first
    read = read_splits(topics, monkeypatch)
    topic = f"the cat , {UNK} the cat {EOS} >>> f ( 10 ) == ' a_b ' [ {UNK} ] {EOS}"
    first = f"{topic} {UNK} {UNK} {UNK} thrice thrice thrice {EOS}"
    assert read == {"train": " ".join([first] + [topic] * 5), "valid": topic, "test": topic}


def test_topics_that_are_a_section_of_a_longer_one_are_left_out(monkeypatch):
    section = "the if statement\nif a:\n  b\n"
    topics = {f"topic {i}": f"first line {i}\nsecond line {i}\nand a third line {i}\n" for i in range(8)}
    expected = read_splits(topics | {"topic 0": topics["topic 0"] + section}, monkeypatch)
    read = read_splits(
        topics | {"topic 0": topics["topic 0"] + section, "if": "The if\n******\n" + section}, monkeypatch
    )
    assert read == expected


def test_the_test_text_is_not_in_train():
    corpus = load_corpus("pydoc")
    lines = {split: "\n".join(corpus.words[i] for i in ids).split(f"\n{EOS}\n") for split, ids in corpus.splits.items()}
    train = set(lines["train"])
    for split in ("valid", "test"):
        long = [line for line in lines[split] if line.count("\n") >= 5]
        assert sum(line in train for line in long) < 0.02 * len(long)


def test_a_python_without_its_topics_is_a_user_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(UserError, match="pydoc_data"):
        load_corpus("pydoc")


def test_the_corpus_has_words_only():
    with pytest.raises(UserError, match=r"data\.level"):
        load_corpus("pydoc", level="char")
