"""Blocks of text shards, split into words.

A block is the lines that start in a range of 8 MiB of a shard. Each word gets a number within its block; the numbers
are stored as NNNNNN.ids (int32), and the words with their counts as NNNNNN.arrow. Together they are a part of the text
that can be translated to any vocabulary later, without splitting it again.

PyArrow does the work outside Python's global lock, so threads can share it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from highrank.data.catalog import EOS
from highrank.errors import MissingPackageError, UserError
from highrank.files import replacing

BLOCK_BYTES = 8 * 2**20
MAX_LINE_BYTES = 64 * 2**20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class ShardBlock:
    """A range of bytes of a shard, and the path of its part without a suffix."""

    shard: Path
    start: int
    stop: int
    part: Path

    @property
    def ids_file(self) -> Path:
        """The numbers of the words. Written last, so a block is finished if it exists."""
        return self.part.with_suffix(".ids")

    @property
    def words_file(self) -> Path:
        return self.part.with_suffix(".arrow")

    def split(self, lower: bool) -> None:
        """Split the lines into words and write both files."""
        pa = pyarrow()
        pc = pa.compute
        lines = self._read()
        text = self._as_array(lines.replace(b"\n", f" {EOS} ".encode()))
        if lower:
            text = pc.utf8_lower(text)
        tokens = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(text)).flatten() if lines else text[:0]
        coded = pc.dictionary_encode(tokens)
        ids = coded.indices.to_numpy()
        words = pa.table({"word": coded.dictionary, "count": np.bincount(ids, minlength=len(coded.dictionary))})
        with replacing(self.words_file) as temporary:
            pa.feather.write_feather(words, temporary)
        with replacing(self.ids_file) as temporary:
            temporary.write_bytes(ids)

    def _read(self) -> bytes:
        """Read the lines. The last one may end after the block."""
        with open(self.shard, "rb") as file:
            if self.start > 0:
                file.seek(self.start - 1)
                file.readline(MAX_LINE_BYTES)  # the rest of a line that starts in the block before
            data = file.read(max(0, self.stop - file.tell()))
            if data and not data.endswith(b"\n"):
                data += file.readline(MAX_LINE_BYTES)
                if not data.endswith(b"\n"):
                    if file.read(1):
                        raise UserError(f"{self.shard} has a line of over {MAX_LINE_BYTES:,} bytes: cut it into lines.")
                    data += b"\n"
        return data.removeprefix(BYTE_ORDER_MARK) if self.start == 0 else data

    def _as_array(self, data: bytes) -> Any:
        """Return an Arrow array of one string without copying it, after a check that it is UTF-8."""
        pa = pyarrow()
        offsets = np.array([0, len(data)], np.int32)
        try:
            return pa.Array.from_buffers(pa.binary(), 1, [None, *map(pa.py_buffer, (offsets, data))]).cast(pa.string())
        except pa.ArrowInvalid:
            line = first_invalid_line(self.shard)
            raise UserError(
                f"{self.shard}, line {line:,}, is not UTF-8 text: convert the file, or unpack it if it is compressed."
            ) from None

    def words(self) -> Any:
        """Return the table of the words and their counts, once the block is finished."""
        return pyarrow().feather.read_table(self.words_file)

    def ids(self) -> np.ndarray:
        """Return the numbers of the words, once the block is finished."""
        return np.fromfile(self.ids_file, np.int32)


def first_invalid_line(path: Path) -> int:
    """Return the number of the first line of a file that is not UTF-8, from 1; 0 if there is none."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 0


def pyarrow() -> Any:
    """Import PyArrow, which is large and only needed to prepare text."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.feather
    except ImportError:
        raise MissingPackageError("PyArrow", "scale") from None
    return pyarrow
