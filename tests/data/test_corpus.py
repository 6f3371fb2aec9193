import dataclasses

import pytest

from highrank.data.catalog import PENN, WIKITEXT_2
from highrank.data.corpus import (
    EOS,
    check_counts,
    load_corpus,
    read_corpus,
)
from highrank.errors import UserError


def write(folder, train="b a\nc b\n", valid="a d\n", test="e\n"):
    folder.mkdir(exist_ok=True)
    for name, text in (("train", train), ("valid", valid), ("test", test)):
        (folder / f"{name}.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def test_words_are_numbered_by_appearance_and_every_line_ends_in_eos(tmp_path):
    corpus = read_corpus(write(tmp_path / "c"))
    assert corpus.words == ["b", "a", EOS, "c", "d", "e"]
    assert corpus.splits["train"].tolist() == [0, 1, 2, 3, 0, 2]
    assert corpus.splits["valid"].tolist() == [1, 4, 2]
    assert corpus.splits["test"].tolist() == [5, 2]


def test_an_empty_line_is_one_eos_and_a_final_line_end_adds_none(tmp_path):
    corpus = read_corpus(write(tmp_path / "c", train="a\n\n  b  \n", valid="a", test="b\r\n"))
    words = {split: [corpus.words[i] for i in ids] for split, ids in corpus.splits.items()}
    assert words["train"] == ["a", EOS, EOS, "b", EOS]
    assert words["valid"] == ["a", EOS]
    assert words["test"] == ["b", EOS]


def test_only_a_newline_ends_a_line(tmp_path):
    """`str.splitlines` splits at more characters; each would add an <eos>."""
    corpus = read_corpus(write(tmp_path / "c", train="a\u2028b\x0cc\x85d\n"))
    assert [corpus.words[i] for i in corpus.splits["train"]] == ["a", "b", "c", "d", EOS]


def test_a_byte_order_mark_is_ignored(tmp_path):
    folder = write(tmp_path / "c", train=b"\xef\xbb\xbfa b\n", valid="a\n", test="b\n")
    assert read_corpus(folder).words == ["a", "b", EOS]
    assert read_corpus(folder, level="char").words == ["a", " ", "b", EOS]


def test_at_character_level_every_character_is_a_token(tmp_path):
    corpus = read_corpus(write(tmp_path / "c", train="ab a\r\n"), level="char")
    assert [corpus.words[i] for i in corpus.splits["train"]] == ["a", "b", " ", "a", EOS]


def test_reading_leaves_nothing_beside_the_text(tmp_path):
    folder = write(tmp_path / "c")
    read_corpus(folder)
    assert sorted(p.name for p in folder.iterdir()) == ["test.txt", "train.txt", "valid.txt"]


def test_fingerprints_differ_by_text_and_level(tmp_path):
    texts = {"a": {}, "b": {"train": "b a\n", "valid": "c b\na d\n"}}  # the same lines, cut elsewhere
    folders = [write(tmp_path / name, **text) for name, text in texts.items()]
    prints = {read_corpus(folder, level).fingerprint for folder in folders for level in ("word", "char")}
    assert len(prints) == 4


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("valid", None),
        ("test", b" \n"),
        ("valid", b"\xef\xbb\xbf"),
        ("test", "\u00a0\n".encode()),
        ("train", b"caf\xe9 a\n"),
    ],
    ids=["missing", "empty", "byte-order mark", "blank", "latin-1"],
)
def test_an_unusable_file_is_named(tmp_path, name, content):
    folder = write(tmp_path / "c")
    (folder / f"{name}.txt").unlink()
    if content is not None:
        (folder / f"{name}.txt").write_bytes(content)
    with pytest.raises(UserError, match=f"{name}.txt"):
        read_corpus(folder)


def test_a_truncated_file_of_the_catalog_is_named(tmp_path):
    write(tmp_path / "penn")
    with pytest.raises(UserError, match=r"train.txt of penn.* 6 .*929,589"):
        load_corpus("penn", tmp_path)


def test_any_folder_is_a_corpus_named_by_its_absolute_path(tmp_path, monkeypatch):
    """A run stores the name, so it must be valid in any working directory."""
    folder = write(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    assert load_corpus("mine").name == str(folder)
    assert load_corpus(str(folder), level="char").level == "char"
    monkeypatch.chdir("/")
    assert load_corpus("mine", tmp_path).name == str(folder)


def test_a_relative_name_is_looked_for_in_the_given_folder_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mine")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with pytest.raises(UserError, match="elsewhere"):
        load_corpus("mine", elsewhere)
    other = write(elsewhere / "mine")
    assert load_corpus("mine", elsewhere).name == str(other)


def test_characters_are_not_compared_with_published_word_counts(tmp_path):
    write(tmp_path / "penn")
    corpus = load_corpus("penn", tmp_path, "char")
    assert (corpus.name, corpus.level) == ("penn", "char")


def test_a_vocabulary_of_another_size_is_an_error(tmp_path):
    corpus = read_corpus(write(tmp_path / "c"))
    check_counts(corpus, dataclasses.replace(PENN, tokens={"train": 6}, vocabulary=6))
    with pytest.raises(UserError, match="penn"):
        check_counts(corpus, dataclasses.replace(PENN, tokens={"train": 6}, vocabulary=7))


def test_an_unknown_corpus_suggests_the_nearest():
    with pytest.raises(UserError, match=r'"pen".*"penn"'):
        load_corpus("pen")


def test_a_file_in_place_of_a_folder_is_named(tmp_path):
    (tmp_path / "train.txt").write_text("a")
    with pytest.raises(UserError, match=r"train\.txt"):
        load_corpus(str(tmp_path / "train.txt"))


@pytest.mark.parametrize("info", [PENN, WIKITEXT_2], ids=lambda i: i.name)
def test_real_corpora_have_the_published_counts(corpora, info):
    corpus = load_corpus(info.name, corpora)
    check_counts(corpus, info)
    assert {s: len(ids) for s, ids in corpus.splits.items()} == info.tokens
    assert corpus.vocab_size == info.vocabulary
