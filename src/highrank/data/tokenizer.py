"""Text to ids and back: with a tokenizer of the package `tokenizers`, or with a plain list of words or characters.

Every line of a text is encoded on its own and ends in `<eos>`. A tokenizer travels as the JSON text of its file
(tokenizer.json), so that a corpus and a run can hold it without the package.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from highrank.data.catalog import EOS, UNK, Level
from highrank.errors import MissingPackageError, UserError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FILE_NAME = "tokenizer.json"
WORD = r"\w+|(?<=\w)['’]\w+|[^\w\s]"  # a word, an ending such as 's, or one punctuation mark
N_BYTE_TOKENS = 257  # with which BPE starts: all bytes, so that no text is unknown, and `<eos>`
LINES_PER_BATCH = 10_000  # an encoded line takes some hundred bytes per token until its ids are copied


def train_tokenizer(lines: Iterable[str], level: Level, *, lower: bool, min_count: int, max_vocab: int) -> "Tokenizer":
    """Train a tokenizer of words, characters or BPE pieces; rarer tokens become `<unk>` (BPE: smaller pieces)."""
    _require_package()
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    limits: dict[str, Any] = {"vocab_size": max_vocab, "min_frequency": min_count, "show_progress": False}
    trainer: Any
    if level == "bpe":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(special_tokens=[EOS], initial_alphabet=alphabet, **limits)
    else:
        tokenizer = Tokenizer(models.WordLevel(unk_token=UNK))
        if level == "word":  # without a decoder, words are joined by spaces
            tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(WORD), "removed", invert=True)
        else:
            tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
            tokenizer.decoder = decoders.Fuse()
        trainer = trainers.WordLevelTrainer(special_tokens=[UNK, EOS], **limits)
    if lower:
        tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def read_tokenizer(path: Path) -> "Tokenizer":
    """Read a tokenizer.json, or the one in a folder, and add `<eos>` if it has none."""
    _require_package()
    file = path / FILE_NAME if path.is_dir() else path
    try:
        tokenizer = parse_tokenizer(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, UserError) as error:
        raise UserError(f"{file} is not a tokenizer ({error}): name a {FILE_NAME}, or a folder that has one.") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.add_special_tokens([EOS])
    return tokenizer


def parse_tokenizer(text: str) -> "Tokenizer":
    """Return the tokenizer that a tokenizer.json describes."""
    _require_package()
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_str(text)
    except Exception as error:  # the package raises nothing more specific
        raise UserError(f"the tokenizer cannot be read: {error}.") from None


def encode_batches(tokenizer: "Tokenizer", lines: Iterable[str]) -> "Iterator[np.ndarray]":
    """Yield the int64 ids of lines, each followed by `<eos>`, some thousand lines at a time."""
    eos = tokenizer.token_to_id(EOS)
    rest = iter(lines)
    while batch := list(islice(rest, LINES_PER_BATCH)):
        encoded = tokenizer.encode_batch_fast(batch, add_special_tokens=False)
        yield np.fromiter(chain.from_iterable((*line.ids, eos) for line in encoded), np.int64)


def encode_lines(tokenizer: "Tokenizer", lines: Iterable[str]) -> Tensor:
    """Return the (tokens,) int64 ids of lines, each followed by `<eos>`."""
    return torch.from_numpy(np.concatenate(list(encode_batches(tokenizer, lines))))


def token_texts(tokenizer: "Tokenizer") -> list[str]:
    """Return how each token is written in a text, by id; a piece of a BPE includes the space before it."""
    from tokenizers import decoders

    of_bytes = isinstance(tokenizer.decoder, decoders.ByteLevel)
    texts = []
    for i in range(1 + max(tokenizer.get_vocab().values())):
        piece = tokenizer.id_to_token(i) or f"<unused-{i}>"
        text = tokenizer.decode([i], skip_special_tokens=False) if of_bytes else piece.replace("▁", " ")
        texts.append(piece if "\ufffd" in text else text)  # some pieces are only a part of a character
    return texts


def unknown_id(tokenizer: "Tokenizer") -> int | None:
    """Return the id of unknown words, or None if the tokenizer can encode any text."""
    return tokenizer.token_to_id(getattr(tokenizer.model, "unk_token", None) or UNK)


class Encoded(NamedTuple):
    ids: list[int]
    unknown: list[str]  # the parts of the text that became `<unk>`


class TextCodec:
    """Turns any text into ids of a vocabulary, and ids into text."""

    def __init__(self, words: list[str], level: Level, tokenizer: str | None = None) -> None:
        self.words = words
        self.level = level
        self.index = {word: i for i, word in enumerate(words)}
        self.tokenizer = None if tokenizer is None else parse_tokenizer(tokenizer)

    @property
    def eos(self) -> int | None:
        return self.index.get(EOS)

    def encode(self, text: str) -> Encoded:
        """Return the ids of a text, in which a line break or `<eos>` ends a line (or is a space, as in text8).

        Raise a UserError for an unknown word if the vocabulary has no `<unk>`.
        """
        first, *rest = re.split(rf"{EOS}|\n", text)
        ids, unknown = self._encode_line(first)
        for line in rest:
            ids.append(self.eos if self.eos is not None else self.index.get(" ", 0))
            encoded = self._encode_line(line)
            ids += encoded.ids
            unknown += encoded.unknown
        return Encoded(ids, unknown)

    def _encode_line(self, line: str) -> Encoded:
        if self.tokenizer is not None:
            encoded = self.tokenizer.encode(line, add_special_tokens=False)
            unk = unknown_id(self.tokenizer)
            pairs = zip(encoded.ids, encoded.offsets, strict=True)
            return Encoded(encoded.ids, [line[start:stop] for i, (start, stop) in pairs if i == unk])
        tokens = line.split() if self.level == "word" else [*line]
        ids = [self.find(token) for token in tokens]
        unknown = [token for token, i in zip(tokens, ids, strict=True) if i is None]
        if unknown and UNK not in self.index:
            raise UserError(f'"{unknown[0]}" is not in the vocabulary.')
        return Encoded([self.index[UNK] if i is None else i for i in ids], unknown)

    def find(self, token: str) -> int | None:
        """Return the id of a word or character: as it is written or, in a lower-case vocabulary, in lower case."""
        return self.index.get(token, self.index.get(token.lower()))

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids, with a line break for every `<eos>`."""
        return "\n".join(self._decode_line(line) for line in self._lines(ids))

    def _lines(self, ids: Iterable[int]) -> Iterator[list[int]]:
        line: list[int] = []
        for i in ids:
            if i == self.eos:
                yield line
                line = []
            else:
                line.append(i)
        yield line

    def _decode_line(self, ids: list[int]) -> str:
        if self.tokenizer is not None:
            return self.tokenizer.decode(ids, skip_special_tokens=False)
        return (" " if self.level == "word" else "").join(self.words[i] for i in ids)


def _require_package() -> None:
    try:
        import tokenizers  # noqa: F401
    except ImportError:
        raise MissingPackageError("tokenizers", "text") from None
