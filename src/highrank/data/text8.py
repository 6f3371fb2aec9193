"""text8: one file of lower-case letters and spaces, cleaned from Wikipedia by Mahoney.

Every character is a token, and there is no <eos>. The splits are those of Mikolov et al. (2012): the first 90M of the
100M characters train, the next 5M validate, the last 5M test. A shorter file is a prefix of text8 and is split in the
same proportions.
"""

import hashlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from highrank.errors import UserError

ALPHABET = " abcdefghijklmnopqrstuvwxyz"
UNKNOWN = 255
ID_OF_BYTE = bytes(ALPHABET.find(chr(byte)) % 256 for byte in range(256))  # -1 % 256 is UNKNOWN
FILE_NAMES = ("text8", "text8.prefix")  # the first of these that exists is read
FULL_LENGTH = 100_000_000
MD5 = "3bea1919949baf155f99411df5fada7e"  # of the whole file, as commonly distributed
MIN_LENGTH = 40  # two characters each for validation and test


def text8_file(folder: Path) -> Path | None:
    """Return the file that holds text8, or a prefix of it, in a folder."""
    return next((folder / name for name in FILE_NAMES if (folder / name).is_file()), None)


def split_text8(text: bytes, path: Path) -> dict[str, Tensor]:
    """Return the ids of each split, positions in ALPHABET; `path` names the file in errors."""
    if len(text) < MIN_LENGTH:
        raise UserError(f"{path} has {len(text)} characters, too few to split: get text8 again.")
    ids = np.frombuffer(text.translate(ID_OF_BYTE), np.uint8)
    if ids.max() == UNKNOWN:
        position = int(ids.argmax())
        raise UserError(
            f"{path} is not text8: character {position + 1:,} is {text[position : position + 1]!r}, and text8 has "
            "only lower-case letters and spaces."
        )
    ends = (len(ids) * 90 // 100, len(ids) * 95 // 100)
    train, valid, test = (torch.from_numpy(part.astype(np.int64)) for part in np.split(ids, ends))
    return {"train": train, "valid": valid, "test": test}


def text8_extent(length: int) -> str:
    """Return how much of text8 a file of `length` characters holds."""
    return "full" if length == FULL_LENGTH else f"prefix of {length:,} characters"


def is_published(text: bytes) -> bool:
    """Return whether `text` is the whole text8, unchanged."""
    return hashlib.md5(text, usedforsecurity=False).hexdigest() == MD5
