"""Tokenizers: training, text to ids and back, and tokenizers of other programs."""

import sys

import pytest

from highrank.data.catalog import EOS, UNK
from highrank.data.tokenizer import (
    TextCodec,
    encode_lines,
    parse_tokenizer,
    read_tokenizer,
    token_texts,
    train_tokenizer,
)
from highrank.errors import MissingPackageError, UserError

LINES = ["The king's cat saw the dog, and the dog saw it.", "", "Don't  “feed”\tthe café's dog!"] * 3
ODD_LINES = ["The king's  cat\t日本語 naïve 🎉", "", " leading and trailing ", "xyz\x0c{}<eo"]


def trained(level, lines=LINES, **settings):
    return train_tokenizer(lines, level, **({"lower": False, "min_count": 2, "max_vocab": 400} | settings))


def codec(tokenizer, level):
    return TextCodec(token_texts(tokenizer), level, tokenizer.to_str())


def test_words_and_punctuation_are_tokens():
    assert trained("word").encode(LINES[0]).tokens[:5] == ["The", "king", "'s", "cat", "saw"]


def test_rare_words_are_unknown():
    tokenizer = trained("word", [*LINES, "once"], min_count=2)
    assert tokenizer.encode("once the").tokens == [UNK, "the"]


def test_the_vocabulary_keeps_the_most_frequent_words():
    assert set(token_texts(trained("word", max_vocab=4))) == {UNK, EOS, "the", "dog"}


def test_spaces_beside_an_end_of_line_are_kept():
    characters = codec(trained("char"), "char")
    with_name = characters.encode(f"a {EOS} b")
    assert with_name == characters.encode("a \n b")
    assert len(with_name.ids) == 5


def test_lower_casing_also_applies_to_later_text():
    assert trained("word", lower=True).encode("THE Dog").tokens == ["the", "dog"]


@pytest.mark.parametrize("line", ODD_LINES)
def test_bpe_gives_back_any_text(line):
    tokens = codec(trained("bpe"), "bpe")
    encoded = tokens.encode(line)
    assert tokens.decode(encoded.ids) == line
    assert encoded.unknown == []


@pytest.mark.parametrize("level", ["char", "bpe"])
def test_known_text_is_given_back_with_its_line_breaks(level):
    tokens = codec(trained(level), level)
    text = "\n".join(LINES)
    assert tokens.decode(tokens.encode(text).ids) == text


def test_every_line_ends_in_eos():
    tokenizer = trained("char")
    ids = encode_lines(tokenizer, ["it", "", "a"]).tolist()
    assert [tokenizer.id_to_token(i) for i in ids] == ["i", "t", EOS, EOS, "a", EOS]


def test_the_text_of_bpe_pieces_joins_to_the_line():
    tokenizer = trained("bpe")
    texts = token_texts(tokenizer)
    assert "".join(texts[i] for i in tokenizer.encode(LINES[0]).ids) == LINES[0]


def test_a_codec_lists_unknown_words():
    assert codec(trained("word"), "word").encode("the zebra saw").unknown == ["zebra"]


def test_a_plain_vocabulary_in_lower_case_knows_upper_case():
    codec = TextCodec(["<eos>", "<unk>", "the", "us", "US"], "word")
    assert codec.encode("The US ZOO") == ([2, 4, 1], ["ZOO"])


def test_a_plain_vocabulary_without_unk_has_no_unknown_words():
    tokens = TextCodec(["the", "cat", EOS], "word")
    assert tokens.encode("the <eos> cat\nthe").ids == [0, 2, 1, 2, 0]
    assert tokens.decode([0, 1, 2, 0]) == "the cat\nthe"
    with pytest.raises(UserError, match="zebra"):
        tokens.encode("the zebra")


def test_a_tokenizer_of_another_program_gets_an_eos(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    other = Tokenizer(models.WordPiece({"[UNK]": 0, "the": 1, "do": 2, "##g": 3}, unk_token="[UNK]"))
    other.pre_tokenizer = pre_tokenizers.Whitespace()
    other.enable_truncation(2)
    other.enable_padding(length=5)
    other.save(str(tmp_path / "tokenizer.json"))
    tokenizer = read_tokenizer(tmp_path)
    assert encode_lines(tokenizer, ["the dog the zebra"]).tolist() == [1, 2, 3, 1, 0, 4]
    assert token_texts(tokenizer)[4] == EOS
    assert codec(tokenizer, "bpe").encode("the zebra").unknown == ["zebra"]


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"{}"])
def test_a_file_that_is_no_tokenizer_is_named(tmp_path, content):
    file = tmp_path / "tokenizer.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match=r"tokenizer\.json"):
        read_tokenizer(tmp_path)
    with pytest.raises(UserError):
        parse_tokenizer("{}")


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    trained("word").save(str(tmp_path / "tokenizer.json"))
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingPackageError):
        trained("word")
    with pytest.raises(MissingPackageError):
        read_tokenizer(tmp_path)
