"""What commands keep for later in the user's cache folder. All of it is made again when it is missed.

Corpora in the same folder (`data/`) are the user's own, and are left alone.
"""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from highrank.data.corpus import cache_folder

KINDS = {  # the folder's name -> what is in it
    "ids": "tokenised corpora",
    "dynamic": "gradient statistics of runs, for dynamic evaluation",
    "readings": "losses of runs, for compare",
}


@dataclass(frozen=True)
class Kept:
    folder: Path
    about: str
    files: int
    bytes: int


def kept() -> list[Kept]:
    """What there is, kind by kind."""
    found = []
    for name, about in KINDS.items():
        sizes = []
        for file in _files(name):
            with contextlib.suppress(FileNotFoundError):  # a write has ended since
                sizes.append(file.stat().st_size)
        found.append(Kept(cache_folder() / name, about, len(sizes), sum(sizes)))
    return found


def clear() -> None:
    """Remove it, and the folders that are empty then."""
    for name in KINDS:
        for file in _files(name):
            file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # somebody keeps something of their own there
            (cache_folder() / name).rmdir()


def _files(name: str) -> list[Path]:
    """Ours are named by a digest; a write that was killed left its temporary name."""
    folder = cache_folder() / name
    return sorted(file for end in (".safetensors", ".json", ".tmp") for file in folder.glob(f"*{end}"))
