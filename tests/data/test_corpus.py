import dataclasses
import sys
import types

import numpy as np
import pytest
import torch

from highrank.data import corpus as corpora_module
from highrank.data.batches import columns, random_windows, rotate, window_length
from highrank.data.catalog import PENN, WIKITEXT_2
from highrank.data.corpus import EOS, check_counts, load_corpus, read_corpus
from highrank.data.pydoc import UNK, pydoc_corpus
from highrank.errors import UserError


def write(folder, train="b a\nc b\n", valid="a d\n", test="e\n"):
    folder.mkdir(exist_ok=True)
    for name, text in (("train", train), ("valid", valid), ("test", test)):
        (folder / f"{name}.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def test_words_in_order_of_appearance_with_one_eos_a_line(tmp_path):
    corpus = read_corpus(write(tmp_path / "c"))
    assert corpus.words == ["b", "a", EOS, "c", "d", "e"]
    assert corpus.splits["train"].tolist() == [0, 1, 2, 3, 0, 2]
    assert corpus.splits["valid"].tolist() == [1, 4, 2]
    assert corpus.splits["test"].tolist() == [5, 2]


def test_an_empty_line_is_one_eos_and_the_last_line_end_starts_none(tmp_path):
    corpus = read_corpus(write(tmp_path / "c", train="a\n\n  b  \n", valid="a", test="b\r\n"))
    words = {split: [corpus.words[i] for i in ids] for split, ids in corpus.splits.items()}
    assert words["train"] == ["a", EOS, EOS, "b", EOS]
    assert words["valid"] == ["a", EOS]
    assert words["test"] == ["b", EOS]


def test_nothing_but_a_line_end_ends_a_line(tmp_path):
    """Python's `splitlines` knows more of them: each would be an <eos> too many."""
    corpus = read_corpus(write(tmp_path / "c", train="a\u2028b\x0cc\x85d\n"))
    assert [corpus.words[i] for i in corpus.splits["train"]] == ["a", "b", "c", "d", EOS]


def test_the_mark_that_some_editors_put_first_is_no_text(tmp_path):
    folder = write(tmp_path / "c", train=b"\xef\xbb\xbfa b\n", valid="a\n", test="b\n")
    assert read_corpus(folder).words == ["a", "b", EOS]
    assert read_corpus(folder, level="char").words == ["a", " ", "b", EOS]


def test_characters(tmp_path):
    corpus = read_corpus(write(tmp_path / "c", train="ab a\r\n"), level="char")
    assert [corpus.words[i] for i in corpus.splits["train"]] == ["a", "b", " ", "a", EOS]


def test_ids_are_cached_by_content(tmp_path, monkeypatch):
    folder = write(tmp_path / "c")
    first = read_corpus(folder)
    monkeypatch.setattr(corpora_module, "tokenize", lambda texts: pytest.fail("tokenised again"))
    again = read_corpus(folder)
    assert again.words == first.words
    assert all(torch.equal(again.splits[s], first.splits[s]) for s in first.splits)
    assert again.splits["train"].dtype == torch.int64
    monkeypatch.undo()
    write(folder, train="z z\n")
    assert read_corpus(folder).words[0] == "z"
    assert sorted(p.name for p in folder.iterdir()) == ["test.txt", "train.txt", "valid.txt"]


def test_where_nothing_can_be_cached_the_text_is_read_again(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert read_corpus(write(tmp_path / "c")).words[0] == "b"


def test_fingerprints_tell_texts_and_levels_apart(tmp_path):
    texts = {"a": {}, "b": {"train": "b a\n", "valid": "c b\na d\n"}}  # the same lines, cut elsewhere
    folders = [write(tmp_path / name, **text) for name, text in texts.items()]
    prints = {read_corpus(folder, level).fingerprint for folder in folders for level in ("word", "char")}
    assert len(prints) == 4


def test_a_damaged_cache_is_ignored(tmp_path):
    folder = write(tmp_path / "c")
    first = read_corpus(folder)
    for file in (corpora_module.cache_folder() / "ids").iterdir():
        file.write_bytes(file.read_bytes()[:20])
    assert torch.equal(read_corpus(folder).splits["train"], first.splits["train"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "valid.txt").unlink(), "valid.txt is missing"),
        (lambda f: (f / "test.txt").write_text(" \n"), "test.txt is empty"),
        (lambda f: (f / "valid.txt").write_bytes(b"\xef\xbb\xbf"), "valid.txt is empty"),
        (lambda f: (f / "test.txt").write_text("\u00a0\n", encoding="utf-8"), "test.txt is empty"),
        (lambda f: (f / "train.txt").write_bytes(b"caf\xe9 a\n"), r"train.txt is not UTF-8 text \(byte 3 is 0xe9\)"),
    ],
    ids=["missing", "empty", "mark", "blank", "latin-1"],
)
def test_wrong_files_get_one_sentence(tmp_path, change, message):
    folder = write(tmp_path / "c")
    change(folder)
    with pytest.raises(UserError, match=message):
        read_corpus(folder)


def test_a_truncated_file_is_told_by_its_count(tmp_path):
    write(tmp_path / "penn")
    with pytest.raises(UserError, match=r"train.txt of penn has 6 tokens instead of 929,589"):
        load_corpus("penn", tmp_path)


def test_a_corpus_is_found_by_option_then_variable_then_cache(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"penn was not found in .*cache.*--data-dir or HIGHRANK_DATA"):
        load_corpus("penn")
    monkeypatch.setenv("HIGHRANK_DATA", str(write(tmp_path / "penn").parent))
    assert corpora_module.find_folder("penn", None) == tmp_path / "penn"
    other = write(tmp_path / "other")
    assert corpora_module.find_folder("penn", other) == other  # the option wins, and may be the folder itself


def test_the_cache_is_in_the_users_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "here"))
    assert corpora_module.cache_folder() == tmp_path / "here" / "highrank"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert corpora_module.cache_folder() == tmp_path / ".cache" / "highrank"


def test_a_folder_of_the_corpuss_name_comes_before_the_folder_itself(tmp_path):
    write(tmp_path)
    write(tmp_path / "penn")
    assert corpora_module.find_folder("penn", tmp_path) == tmp_path / "penn"


def test_any_folder_is_a_corpus_and_known_by_its_whole_path(tmp_path, monkeypatch):
    """A run remembers the name, and finds the text again from anywhere."""
    folder = write(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    assert load_corpus("mine").name == str(folder)
    assert load_corpus(str(folder), level="char").level == "char"
    monkeypatch.chdir("/")
    assert load_corpus("mine", tmp_path).name == str(folder)


def test_published_counts_are_of_words(tmp_path):
    write(tmp_path / "penn")
    corpus = load_corpus("penn", tmp_path, "char")
    assert (corpus.name, corpus.level) == ("penn", "char")
    with pytest.raises(UserError, match="pydoc comes at word level only: leave data"):
        load_corpus("pydoc", level="char")


def test_another_vocabulary_is_told(tmp_path):
    info = dataclasses.replace(PENN, tokens={"train": 6}, vocabulary=7)
    with pytest.raises(
        UserError, match="penn has a vocabulary of 6 words instead of 7: a file is from another version"
    ):
        check_counts(read_corpus(write(tmp_path / "c")), info)


def test_unknown_corpus():
    with pytest.raises(UserError, match='called "pen"; did you mean "penn"'):
        load_corpus("pen")


@pytest.mark.parametrize("info", [PENN, WIKITEXT_2], ids=lambda i: i.name)
def test_published_counts(corpora, info):
    corpus = load_corpus(info.name, corpora)
    check_counts(corpus, info)
    assert {s: len(ids) for s, ids in corpus.splits.items()} == info.tokens
    assert corpus.vocab_size == info.vocabulary


def test_the_embedded_corpus():
    corpus = pydoc_corpus()
    assert {EOS, UNK} <= set(corpus.words)
    assert len(corpus.splits["train"]) > 50_000
    assert min(len(corpus.splits[s]) for s in ("valid", "test")) > 3_000
    everything = torch.cat(list(corpus.splits.values()))
    assert everything.bincount().min() == 3  # rarer words are <unk>
    assert pydoc_corpus().fingerprint == corpus.fingerprint


def test_how_the_embedded_text_is_read(monkeypatch):
    topics = {f"topic {i}": "The cat, the Cat\n\n>>> f(10) == 'a_b'\n" for i in range(10)}
    topics["topic 7"] += "once twice twice thrice thrice thrice\n"  # the longest topic comes first
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", types.SimpleNamespace(topics=topics))
    corpus = pydoc_corpus()
    read = {split: " ".join(corpus.words[i] for i in ids) for split, ids in corpus.splits.items()}
    topic = f"the cat , the cat {EOS} >>> f ( 10 ) == ' a_b ' {EOS}"
    first = f"{topic} {UNK} {UNK} {UNK} thrice thrice thrice {EOS}"
    assert read == {"train": " ".join([first] + [topic] * 7), "valid": topic, "test": topic}


def test_columns():
    assert columns(torch.arange(10), 3).tolist() == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    with pytest.raises(UserError, match="too few for a batch of 8"):
        columns(torch.arange(10), 8)


def test_rotating_starts_every_column_at_its_own_row():
    stream = columns(torch.arange(12), 3)
    assert rotate(stream, [0, 1, 3]).t().tolist() == [[0, 1, 2, 3], [5, 6, 7, 4], [11, 8, 9, 10]]
    assert rotate(stream, [0, 0, 0]).equal(stream)


def test_windows_cover_the_stream_once():
    stream = columns(torch.arange(1000), 4)
    windows = list(random_windows(stream, np.random.default_rng(0), bptt=20, max_over_bptt=10))
    assert torch.equal(torch.cat([w.targets for w in windows]), stream[1:])
    assert torch.equal(torch.cat([w.words for w in windows]), stream[:-1])
    assert len({len(w.words) for w in windows}) > 3
    assert all(torch.equal(w.words, stream[w.start : w.start + len(w.words)]) for w in windows)


def test_a_last_window_of_one_word_counts_too():
    stream = columns(torch.arange(4), 2)
    (window,) = random_windows(stream, np.random.default_rng(0), bptt=20, max_over_bptt=10)
    assert (window.words.tolist(), window.targets.tolist()) == ([[0, 2]], [[1, 3]])


def test_the_rest_of_an_epoch():
    stream = columns(torch.arange(1000), 4)
    windows = list(random_windows(stream, np.random.default_rng(0), bptt=20, max_over_bptt=10, start=100))
    assert windows[0].start == 100
    assert torch.equal(torch.cat([w.words for w in windows]), stream[100:-1])


def test_window_lengths_follow_the_papers_distribution():
    rng = np.random.default_rng(0)
    lengths = np.array([window_length(rng, 70, 40) for _ in range(20_000)])
    assert 0.04 < (lengths < 50).mean() < 0.06  # half-length windows, p = .05
    assert abs(lengths[lengths > 50].mean() - 69.5) < 0.2  # int() cuts half a token off N(70, 5)
    assert abs(lengths[lengths > 50].std() - 5) < 0.1
    assert lengths.min() >= 5
    assert max(window_length(rng, 10, 2) for _ in range(500)) == 12


def test_no_window_is_shorter_than_five_words():
    """Half of a short bptt would leave windows of one word or none."""
    rng = np.random.default_rng(0)
    lengths = [window_length(rng, bptt=8, max_over_bptt=20) for _ in range(2000)]
    assert min(lengths) == 5
    assert lengths.count(5) > 400  # the short ones are lengthened, not drawn again


@pytest.mark.parametrize("multiple", [4, 5, 16, 200])
def test_lengths_are_rounded_to_the_nearest_multiple(multiple):
    """Which keeps their mean, and so the learning rate that is scaled by them; never to nothing."""
    seeds = range(300)
    exact = np.array([window_length(np.random.default_rng(s), 70, 20) for s in seeds])
    rounded = np.array([window_length(np.random.default_rng(s), 70, 20, multiple) for s in seeds])
    assert (rounded % multiple == 0).all()
    assert (rounded > 0).all()
    assert (np.abs(rounded - exact)[rounded > multiple] <= multiple / 2).all()
    if multiple < 10:
        assert abs(rounded.mean() - exact.mean()) < 0.3
