"""Corpora made of a user's own text: splits, vocabulary, counts and errors."""

import pytest

from highrank.data.corpus import load_corpus, read_corpus
from highrank.data.own_text import make_corpus, read_description
from highrank.errors import UserError

SPLITS = ("train", "valid", "test")


@pytest.fixture
def book(tmp_path):
    """A text of 200 lines; the last word of each line is its number, so most of these occur once."""
    path = tmp_path / "book.txt"
    path.write_text("".join(f"the cat saw dog number {i}\n" for i in range(200)))
    return path


def lines(folder, split):
    return (folder / f"{split}.txt").read_text().splitlines()


def test_the_text_is_cut_into_blocks_of_ninety_five_and_five_percent(book, tmp_path):
    make_corpus([book], tmp_path / "out")
    parts = [lines(tmp_path / "out", split) for split in SPLITS]
    assert [line for part in parts for line in part] == book.read_text().splitlines()
    assert [len(part) for part in parts] == pytest.approx([180, 10, 10], abs=3)


def test_given_files_become_the_splits(book, tmp_path):
    for split in ("valid", "test"):
        (tmp_path / f"{split}.txt").write_text(f"the {split}\n")
    make_corpus([book, book], tmp_path / "out", valid=tmp_path / "valid.txt", test=tmp_path / "test.txt")
    assert [len(lines(tmp_path / "out", split)) for split in SPLITS] == [400, 1, 1]
    assert lines(tmp_path / "out", "test") == ["the test"]


def test_the_vocabulary_comes_from_train_only(book, tmp_path):
    with open(book, "a") as file:
        file.write("zebra zebra zebra\n")
    made = make_corpus([book], tmp_path / "out")
    corpus = read_corpus(tmp_path / "out")
    assert set(corpus.words) == {"<unk>", "<eos>", "the", "cat", "saw", "dog", "number"}
    assert made.vocabulary == corpus.vocab_size == 7
    assert corpus.unseen() == (0, 0)


def test_counts_are_those_of_training(book, tmp_path):
    made = make_corpus([book], tmp_path / "out", level="bpe", max_vocab=300)
    corpus = load_corpus(str(tmp_path / "out"))
    assert corpus.level == "bpe"
    assert made.tokens == {split: len(ids) for split, ids in corpus.splits.items()}
    assert made.unknown == dict.fromkeys(SPLITS, 0)
    assert read_description(tmp_path / "out") == made


def test_unknown_tokens_are_counted_by_split(book, tmp_path):
    made = make_corpus([book], tmp_path / "out")
    assert made.unknown == {split: len(lines(tmp_path / "out", split)) for split in SPLITS}


def test_ids_of_an_earlier_tokenizer_are_not_taken_from_the_cache(book, tmp_path):
    make_corpus([book], tmp_path / "a")
    make_corpus([book], tmp_path / "b", min_count=1)
    assert load_corpus(str(tmp_path / "a")).vocab_size < load_corpus(str(tmp_path / "b")).vocab_size


@pytest.mark.parametrize("tokenizer", ["a", "a/tokenizer.json"])
def test_a_corpus_can_share_the_tokenizer_of_another(book, tmp_path, tokenizer):
    first = make_corpus([book], tmp_path / "a")
    (tmp_path / "more.txt").write_text("a zebra saw the cat\n" * 100)
    second = make_corpus([tmp_path / "more.txt"], tmp_path / "b", tokenizer=tmp_path / tokenizer)
    assert (second.level, second.vocabulary) == (first.level, first.vocabulary)
    assert second.lower is second.min_count is second.max_vocab is None
    assert read_description(tmp_path / "b") == second
    words = [load_corpus(str(tmp_path / name)).words for name in "ab"]
    assert words[0] == words[1]


def test_windows_line_ends_and_byte_order_marks_are_dropped(tmp_path):
    (tmp_path / "book.txt").write_bytes("\ufeff".encode() + b"the cat\r\n" * 100)
    make_corpus([tmp_path / "book.txt"], tmp_path / "out", min_count=1)
    assert set(read_corpus(tmp_path / "out").words) == {"<unk>", "<eos>", "the", "cat"}


@pytest.mark.parametrize(
    ("content", "name"),
    [(b"one line only", "valid"), (b"fine\n\xe9t\xe9\n", "line 2 of .*book"), (None, "book"), (b"\n\n\n", "train")],
)
def test_a_text_that_cannot_be_used_is_an_error_that_leaves_nothing(tmp_path, content, name):
    if content is not None:
        (tmp_path / "book.txt").write_bytes(content)
    with pytest.raises(UserError, match=name):
        make_corpus([tmp_path / "book.txt"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_another_level_than_that_of_the_tokenizer_is_an_error(book, tmp_path):
    make_corpus([book], tmp_path / "out", level="bpe")
    with pytest.raises(UserError, match="bpe"):
        load_corpus(str(tmp_path / "out"), level="char")


def test_plain_text_has_no_bpe_level(toy_folder):
    with pytest.raises(UserError, match="tokenizer"):
        load_corpus(str(toy_folder), level="bpe")


def test_words_that_train_never_has_are_counted(toy_folder):
    with open(toy_folder / "valid.txt", "a") as file:
        file.write("zebra okapi zebra\n")
    assert read_corpus(toy_folder).unseen() == (3, 2)
