"""text8: proportions of the splits, ids, the extent of the file, and errors."""

import pytest

from highrank.data.corpus import load_corpus
from highrank.data.text8 import ALPHABET, FULL_LENGTH, text8_extent
from highrank.errors import UserError

TEXT = " anarchism originated as a term of abuse xyz" * 5 + "qwerty"  # 226 characters


def write(folder, text=TEXT, name="text8"):
    (folder / "text8").mkdir(exist_ok=True)
    (folder / "text8" / name).write_text(text)
    return folder


def test_splits_are_90_5_and_5_percent_in_the_order_of_the_text(tmp_path):
    corpus = load_corpus("text8", write(tmp_path), "char")
    assert [len(corpus.splits[split]) for split in ("train", "valid", "test")] == [203, 11, 12]
    assert "".join(corpus.words[i] for ids in corpus.splits.values() for i in ids) == TEXT
    assert corpus.words == [*ALPHABET]
    assert corpus.vocab_size == 27


def test_the_extent_tells_the_full_file_from_a_prefix(tmp_path):
    assert load_corpus("text8", write(tmp_path), "char").extent == "prefix of 226 characters"
    assert text8_extent(FULL_LENGTH) == "full"


def test_a_prefix_is_found_and_the_file_called_text8_comes_first(tmp_path):
    write(tmp_path, TEXT[:100], "text8.prefix")
    assert load_corpus("text8", tmp_path, "char").extent == "prefix of 100 characters"
    write(tmp_path)
    assert load_corpus("text8", tmp_path / "text8", "char").extent == "prefix of 226 characters"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (TEXT[:50] + "A" + TEXT, r"text8.* 51 .*'A'"),
        (TEXT + "\n", r"text8.* 227 .*\\n"),
        (TEXT[:3] + "é" + TEXT, r"text8.* 4 .*xc3"),
        ("short", "text8"),
        ("", "text8"),
    ],
    ids=["capital", "line end", "accent", "short", "empty"],
)
def test_another_character_is_named_with_its_file(text, names, tmp_path):
    with pytest.raises(UserError, match=names):
        load_corpus("text8", write(tmp_path, text), "char")


def test_there_are_no_words(tmp_path):
    with pytest.raises(UserError, match=r"text8.*data\.level"):
        load_corpus("text8", write(tmp_path))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match="text8"):
        load_corpus("text8", tmp_path, "char")


def test_the_prefix_at_hand(corpora):
    corpus = load_corpus("text8", corpora, "char")
    assert corpus.extent == "prefix of 12,549,840 characters"
    assert [len(corpus.splits[split]) for split in ("train", "valid", "test")] == [11_294_856, 627_492, 627_492]
