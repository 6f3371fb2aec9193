"""A text as ids on disk, in the format of Megatron's indexed datasets, which other training programs read too.

    NAME.bin   int32: the ids of all sentences, one after the other
    NAME.idx   a header; int32: the length of each sentence; int64: its first byte in NAME.bin;
               int64: the first sentence of each document, and the end. Here every sentence is a document of its own.

Numbers are little-endian. Only the range that is needed is mapped into memory, so that the memory of a process does not
grow with the text.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from highrank.errors import UserError
from highrank.files import naming_file

HEADER = struct.Struct("<9sQBQQ")  # magic, version, dtype, number of sentences, number of documents + 1
MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
INT32 = 4  # Megatron's code of the dtype
ID_BYTES = 4


@dataclass(frozen=True)
class IndexedText:
    """The files NAME.bin and NAME.idx of a text, without their contents."""

    path: Path  # folder / NAME
    tokens: int
    sentences: int
    vocab_size: int  # ids are below this

    @property
    def bin_file(self) -> Path:
        return self.path.with_suffix(".bin")

    @property
    def idx_file(self) -> Path:
        return self.path.with_suffix(".idx")

    @property
    def idx_bytes(self) -> int:
        """The size of NAME.idx."""
        return HEADER.size + 20 * self.sentences + 8

    def mapped(self) -> np.ndarray:
        """Return all ids, unchecked. They are read from disk when they are used."""
        return _map(self.bin_file, "<i4", 0, self.tokens)

    def ids(self, start: int, stop: int) -> np.ndarray:
        """Read the ids of tokens start..stop - 1; raise a UserError if one is not in the vocabulary."""
        ids = _map(self.bin_file, "<i4", ID_BYTES * start, stop - start)
        if ids.min() < 0 or ids.max() >= self.vocab_size:
            raise self.damaged(self.bin_file)
        return ids

    def starts(self, first: int, last: int) -> np.ndarray:
        """Return the positions of the first tokens of sentences first..last - 1, and the end of the last one."""
        sizes = _map(self.idx_file, "<i4", self._size(first), last - first)
        if sizes.min() < 1:
            raise self.damaged(self.idx_file)
        (byte,) = _map(self.idx_file, "<i8", self._first_byte(first), 1)
        return byte // ID_BYTES + np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])

    def damaged(self, file: Path) -> UserError:
        """Return the error for a file that has the right size and the wrong content."""
        return UserError(f"{file} is damaged: prepare the corpus again.")

    def create(self) -> None:
        """Create both files in their final size, with the header; `write` fills in the sentences."""
        with naming_file(self.bin_file), open(self.bin_file, "wb") as file:
            file.truncate(ID_BYTES * self.tokens)
        with naming_file(self.idx_file), open(self.idx_file, "wb") as file:
            file.write(HEADER.pack(MAGIC, VERSION, INT32, self.sentences, self.sentences + 1))
            file.truncate(self.idx_bytes)
        _write(self.idx_file, "<i8", self._document(self.sentences), [self.sentences])

    def write(self, token: int, sentence: int, ids: np.ndarray, sizes: np.ndarray) -> None:
        """Write consecutive sentences, of which the first one begins at this token and has this number."""
        starts = token + np.cumsum(sizes, dtype=np.int64) - sizes
        _write(self.bin_file, "<i4", ID_BYTES * token, ids)
        _write(self.idx_file, "<i4", self._size(sentence), sizes)
        _write(self.idx_file, "<i8", self._first_byte(sentence), ID_BYTES * starts)
        _write(self.idx_file, "<i8", self._document(sentence), sentence + np.arange(len(sizes)))

    # The offsets of one sentence or document in the three sections of NAME.idx.

    def _size(self, number: int) -> int:
        return HEADER.size + 4 * number

    def _first_byte(self, number: int) -> int:
        return HEADER.size + 4 * self.sentences + 8 * number

    def _document(self, number: int) -> int:
        return HEADER.size + 12 * self.sentences + 8 * number


def open_text(path: Path, vocab_size: int) -> IndexedText:
    """Open the files of a text; raise a UserError if one is missing, cut or of another format."""
    text = IndexedText(path, 0, 0, vocab_size)
    try:
        tokens = text.bin_file.stat().st_size // ID_BYTES
        idx_bytes = text.idx_file.stat().st_size
        with open(text.idx_file, "rb") as file:
            header = file.read(HEADER.size).ljust(HEADER.size, b"\0")
    except FileNotFoundError as error:
        raise UserError(f"{error.filename} is missing: prepare the corpus again.") from None
    magic, version, dtype, sentences, _ = HEADER.unpack(header)
    if (magic, version, dtype) != (MAGIC, VERSION, INT32):
        raise UserError(f"{text.idx_file} is not the index of a text of int32 ids: prepare the corpus again.")
    text = IndexedText(path, tokens, sentences, vocab_size)
    if idx_bytes != text.idx_bytes or text.starts(sentences - 1, sentences)[-1] != tokens:
        raise UserError(f"{text.bin_file} or {text.idx_file.name} is incomplete: prepare the corpus again.")
    return text


def _map(file: Path, dtype: str, offset: int, count: int) -> np.ndarray:
    """Map part of a file into memory. Changes of the array stay there."""
    return np.memmap(file, dtype, "c", int(offset), (count,))


def _write(path: Path, dtype: str, offset: int, values: ArrayLike) -> None:
    """Write values from a byte of an existing file on."""
    # Not through a map: where the disk is full, storing into one ends the process without an error.
    with naming_file(path), open(path, "r+b") as file:
        file.seek(offset)
        file.write(np.ascontiguousarray(values, dtype).data)
