"""A corpus: three splits of text as word (or character) ids over one vocabulary.

Words are separated by white space and every line ends in `<eos>`; the vocabulary is in order of appearance over
train, valid and test, as in the paper's code. At character level every character of a line is a token. A folder with a
tokenizer (`own_text.py`) is read with that instead.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from highrank.data import tokenizer as tokenizers
from highrank.data.catalog import CORPORA, EOS, ONE_BILLION_WORD, SPLITS, UNK, CorpusInfo, Level, corpus_info
from highrank.data.folders import find_folder, own_folder
from highrank.data.indexed import IndexedText
from highrank.data.own_text import Description, read_description
from highrank.data.prepared import is_prepared, read_prepared
from highrank.data.pydoc import pydoc_lines
from highrank.data.shards import billion_word_extent
from highrank.data.text8 import ALPHABET, split_text8, text8_extent, text8_file
from highrank.errors import UserError, nearest

Tokenized = tuple[list[str], dict[str, Tensor]]  # the vocabulary by id, and the ids of each split


@dataclass(frozen=True)
class Corpus:
    name: str  # in the catalog, or the absolute path of the folder
    level: Level
    words: list[str]  # the vocabulary, by id
    splits: dict[str, Tensor]  # (tokens,) ids by split: int64, or int32 on disk
    fingerprint: str  # of the text and how it was read; stored with a run
    extent: str | None = None  # how much of the published text this is, for a corpus that may be cut
    tokenizer: str | None = None  # the content of tokenizer.json, for a corpus that was read with one
    n_bytes: dict[str, int] | None = None  # of the UTF-8 text by split, for bits per byte
    texts: dict[str, IndexedText] | None = None  # by split, for a prepared corpus

    @property
    def vocab_size(self) -> int:
        return len(self.words)

    def count_unknown(self, split: str) -> int:
        """Return how many tokens of a split stand for unknown words."""
        unk = self.words.index(UNK) if UNK in self.words else -1
        return int((self.splits[split] == unk).sum())

    def unseen(self) -> tuple[int, int]:
        """Return how many tokens of valid and test, and how many different words, are not in train.

        Only plain text has any: a tokenizer turns them into `<unk>`.
        """
        if self.tokenizer is not None or self.n_bytes is None:
            return 0, 0
        others = torch.cat([self.splits["valid"], self.splits["test"]])
        unseen = others[others > self.splits["train"].max()]  # ids are in order of appearance, and train comes first
        return len(unseen), len(unseen.unique())

    def bits_per_byte(self, split: str, nll: float) -> float | None:
        """Return the loss in bits per byte of text, from nats per token; None except for BPE pieces.

        Unlike perplexity, this can be compared between models with different tokenizers.
        """
        if self.level != "bpe" or self.n_bytes is None:
            return None
        return nll / math.log(2) * len(self.splits[split]) / self.n_bytes[split]

    def ids(self, split: str, stop: int | None = None, *, start: int = 0) -> Tensor:
        """Return the int64 ids of a split, or only of its tokens start..stop - 1."""
        if split not in self.splits:
            raise UserError(f'there is no split "{split}": choose valid, test or train.')
        ids = self.splits[split][start:stop]
        if self.texts is not None:
            ids = torch.from_numpy(self.texts[split].ids(start, start + len(ids)))
        return ids.long()


def load_corpus(name: str, data_dir: Path | None = None, level: Level = "word") -> Corpus:
    """Load a corpus of the catalog, checking its counts, any folder with the three files, or a prepared corpus."""
    if name not in CORPORA:
        if folder := own_folder(name, data_dir):
            return read_corpus(folder, level)
        if Path(name).is_file():
            raise UserError(f"{name} is a file: name the folder that holds train.txt, valid.txt and test.txt.")
        if data_dir is not None:
            raise UserError(
                f'there is no corpus called "{name}", nor a folder of that name with train.txt in {data_dir}'
                f"{nearest(name, CORPORA)}"
            )
    info = corpus_info(name)
    if info.embedded and data_dir is not None:
        raise UserError(f"{name} comes with Python and is not read from {data_dir}: set data.corpus=FOLDER instead.")
    if info.suffix == ".jsonl":
        raise UserError(f"{name} holds dialogs: choose a corpus of text, or a recipe for dialogs.")
    if name in ("pydoc", "text8"):
        if level != info.level:
            raise UserError(f"{name} comes at {info.level} level only: data.level must be {info.level}.")
        return _pydoc_corpus() if name == "pydoc" else _text8_corpus(find_folder(name, data_dir))
    corpus = read_corpus(find_folder(name, data_dir), level=level, name=name)
    if level == info.level:
        check_counts(corpus, info)
    return corpus


def _pydoc_corpus() -> Corpus:
    lines, fingerprint = pydoc_lines()
    tokens = {split: (token for line in part for token in (*line, EOS)) for split, part in lines.items()}
    return Corpus("pydoc", "word", *number_tokens(tokens), fingerprint)


def _text8_corpus(folder: Path) -> Corpus:
    path = text8_file(folder)
    assert path is not None
    text = _read_bytes(path)
    fingerprint = hashlib.sha256(text).hexdigest()[:16]
    return Corpus("text8", "char", [*ALPHABET], split_text8(text, path), fingerprint, text8_extent(len(text)))


def check_counts(corpus: Corpus, info: CorpusInfo) -> None:
    """Raise a UserError if the counts of a corpus are not the published ones."""
    for split, expected in (info.tokens or {}).items():
        if (count := len(corpus.splits[split])) != expected:
            raise UserError(
                f"{split}.txt of {info.name} has {count:,} tokens instead of {expected:,} "
                f"(one <eos> per line counted): the file is truncated or from another version; get it again from "
                f"{info.source}."
            )
    if info.vocabulary is not None and corpus.vocab_size != info.vocabulary:
        fix = f"a file is from another version; get it again from {info.source}."
        if corpus.texts is not None:
            fix = f"prepare it with a vocabulary of {info.vocabulary:,} words, or name its folder as data.corpus."
        raise UserError(
            f"{info.name} has a vocabulary of {corpus.vocab_size:,} words instead of {info.vocabulary:,}: {fix}"
        )


# --- a folder with train.txt, valid.txt and test.txt, or a prepared one ----------------------------------------------


def read_corpus(folder: Path, level: Level = "word", name: str = "") -> Corpus:
    """Read train.txt, valid.txt and test.txt of a folder, or open a prepared corpus."""
    if is_prepared(folder):
        return _prepared_corpus(folder, level, name)
    description = read_description(folder)
    level = _level(folder, level, description)
    tokenizer = None
    if description is not None:
        tokenizer = _decode(_read_bytes(folder / tokenizers.FILE_NAME), folder / tokenizers.FILE_NAME)
    texts = {split: _read_bytes(folder / f"{split}.txt") for split in SPLITS}
    digest = hashlib.sha256(f"{level}{tokenizer or ''}".encode())
    for text in texts.values():
        digest.update(hashlib.sha256(text).digest())
    fingerprint = digest.hexdigest()[:16]
    decoded = {split: _decode(text, folder / f"{split}.txt") for split, text in texts.items()}
    tokenized = _tokenize(decoded, level, tokenizer)
    n_bytes = {split: len(text) for split, text in texts.items()}
    return Corpus(name or str(folder), level, *tokenized, fingerprint, tokenizer=tokenizer, n_bytes=n_bytes)


def _prepared_corpus(folder: Path, level: Level, name: str) -> Corpus:
    if level != "word":
        raise UserError(f"{folder} was prepared as words: data.level must be word.")
    prepared = read_prepared(folder)
    fingerprint = prepared.manifest.fingerprint
    extent = billion_word_extent(prepared.manifest.shards["train"]) if name == ONE_BILLION_WORD.name else None
    return Corpus(
        name or str(folder), level, prepared.words, prepared.splits, fingerprint, extent, texts=prepared.texts
    )


def _level(folder: Path, level: Level, description: Description | None) -> Level:
    """Return the level at which a folder is read: that of its tokenizer, or else the given one."""
    if description is None:
        if level == "bpe":
            raise UserError(f"{folder} has no tokenizer: make a corpus of it, or set data.level to word or char.")
        return level
    if level not in ("word", description.level):
        raise UserError(f"{folder} was made of {description.level} tokens: data.level must be {description.level}.")
    return description.level


def _tokenize(texts: dict[str, str], level: Level, tokenizer: str | None) -> Tokenized:
    if tokenizer is None:
        return number_tokens({split: _tokens(text, level) for split, text in texts.items()})
    parsed = tokenizers.parse_tokenizer(tokenizer)
    splits = {split: tokenizers.encode_lines(parsed, _lines(text)) for split, text in texts.items()}
    return tokenizers.token_texts(parsed), splits


def number_tokens(tokens_by_split: Mapping[str, Iterable[str]]) -> Tokenized:
    """Number the tokens in order of appearance."""
    ids: dict[str, int] = {}
    splits = {}
    for split, tokens in tokens_by_split.items():
        array = np.fromiter((ids.setdefault(token, len(ids)) for token in tokens), dtype=np.int64)
        splits[split] = torch.from_numpy(array)
    return list(ids), splits


def _lines(text: str) -> list[str]:
    lines = text.split("\n")  # not splitlines, which also splits at form feeds and other characters
    if lines[-1] == "":  # a final line end does not start another line
        lines.pop()
    return lines


def _tokens(text: str, level: Level) -> Iterator[str]:
    for line in _lines(text):
        yield from line.split() if level == "word" else line
        yield EOS


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path} is missing: a corpus folder needs train.txt, valid.txt and test.txt.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from error


def _decode(data: bytes, path: Path) -> str:
    try:
        text = data.decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n")  # drop a byte-order mark
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 text (byte {error.start} is {data[error.start]:#04x}): convert it, or get the "
            "word-level text rather than a compressed or binary file."
        ) from None
    if not text.strip():
        raise UserError(f"{path} is empty: get the file again.")
    return text
