"""A prepared corpus: a folder with the ids of each split on disk, for text that does not fit into memory.

prepared.json                          counts and checksums; written last, so a folder that has it is complete
vocabulary.json                        the words by id
train.bin, train.idx, valid.bin, ...   ids and sentences of each split (`indexed.py`)
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from highrank.data.catalog import SPLITS
from highrank.data.indexed import IndexedText, open_text
from highrank.errors import UserError
from highrank.progress import OnProgress, no_progress
from highrank.schema import read_as

AGAIN = "prepare the corpus again"
MANIFEST = "prepared.json"
VOCABULARY = "vocabulary.json"
FILES = (VOCABULARY, *(f"{split}{suffix}" for split in SPLITS for suffix in (".bin", ".idx")))


@dataclass(frozen=True)
class Manifest:
    """The format of prepared.json."""

    lower: bool  # whether the text was lower-cased
    vocabulary: int  # words, with <unk> and <eos>
    shards: dict[str, list[str]]  # file names by split
    tokens: dict[str, int]  # by split, with one <eos> per line
    sentences: dict[str, int]
    unknown: dict[str, int]  # tokens that are <unk>
    sha256: dict[str, str]  # by file

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256("".join(self.sha256[file] for file in FILES).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class PreparedCorpus:
    """The contents of a prepared folder; ids are read from disk when they are used."""

    manifest: Manifest
    words: list[str]
    texts: dict[str, IndexedText]

    @property
    def splits(self) -> dict[str, Tensor]:
        """Return the (tokens,) int32 ids of each split, unchecked."""
        return {split: torch.from_numpy(text.mapped()) for split, text in self.texts.items()}


def is_prepared(folder: Path) -> bool:
    """Return whether a folder holds a prepared corpus."""
    return (folder / MANIFEST).is_file()


def read_prepared(folder: Path) -> PreparedCorpus:
    """Open a prepared corpus. This reads its vocabulary and checks the sizes of its files, not their checksums."""
    manifest = read_manifest(folder)
    words = read_as(list[str], folder / VOCABULARY, "vocabulary", AGAIN)
    texts = {split: open_text(folder / split, len(words)) for split in SPLITS}
    for split, text in texts.items():
        if (text.tokens, text.sentences) != (manifest.tokens[split], manifest.sentences[split]):
            raise UserError(f"{text.bin_file} does not have the tokens that {MANIFEST} counts: prepare it again.")
    return PreparedCorpus(manifest, words, texts)


def read_manifest(folder: Path) -> Manifest:
    """Read prepared.json of a folder."""
    return read_as(Manifest, folder / MANIFEST, "description of a prepared corpus", AGAIN)


def check_files(folder: Path, on_progress: OnProgress = no_progress) -> None:
    """Raise a UserError that names the first file of a prepared corpus whose checksum is wrong."""
    expected = read_manifest(folder).sha256
    for i, file in enumerate(FILES):
        on_progress(i, len(FILES))
        if sha256(folder / file) != expected[file]:
            raise UserError(f"{folder / file} is damaged: its checksum is wrong. Prepare the corpus again.")


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
