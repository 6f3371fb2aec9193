"""The folders of corpora on this machine, and the cache folder."""

import os
from pathlib import Path

from highrank.data.catalog import CORPORA
from highrank.data.prepared import is_prepared
from highrank.data.text8 import text8_file
from highrank.errors import UserError

DATA_VARIABLE = "HIGHRANK_DATA"


def find_folder(name: str, data_dir: Path | None, suffix: str = ".txt") -> Path:
    """Find the folder of a corpus in `data_dir`, else in $HIGHRANK_DATA, else in the cache folder.

    Each may be the corpus folder itself or hold a folder of the corpus's name. Its files end in `suffix`.
    """
    folder = corpora_folder(data_dir)
    for candidate in (folder / name, folder):
        if text8_file(candidate) if name == "text8" else _holds_corpus(candidate, suffix):
            return candidate
    files = {"text8": "the file text8", "one-billion-word": "the prepared corpus"}.get(
        name, f"train{suffix}, valid{suffix} and test{suffix}"
    )
    has_archive = name in CORPORA and CORPORA[name].archive is not None
    hint = f"'highrank data get {name}' downloads it." if has_archive else "'highrank data list' says where to get it."
    raise UserError(
        f"the corpus {name} was not found in {folder}: put {files} into {folder / name}, or set {DATA_VARIABLE} to "
        f"the folder that holds them. {hint}"
    )


def corpora_folder(data_dir: Path | None) -> Path:
    """Return the folder in which corpora of the catalog are looked for."""
    return data_dir or Path(os.environ.get(DATA_VARIABLE) or cache_folder() / "data")


def own_folder(name: str, data_dir: Path | None, suffix: str = ".txt") -> Path | None:
    """Return the absolute path of a user's own corpus folder, given relative to `data_dir` or else to here, or None."""
    folder = (data_dir or Path()) / name
    return folder.resolve() if name not in CORPORA and _holds_corpus(folder, suffix) else None


def _holds_corpus(folder: Path, suffix: str) -> bool:
    return (folder / f"train{suffix}").is_file() or (suffix == ".txt" and is_prepared(folder))


def cache_folder() -> Path:
    """Return this program's folder in the user's cache ($XDG_CACHE_HOME, or ~/.cache)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "highrank"
