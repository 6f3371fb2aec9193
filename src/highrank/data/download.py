"""Downloads of corpora: resumed after an interruption, and checked against published checksums."""

import hashlib
import http.client
import shutil
import urllib.error
import urllib.request
import zipfile
import zlib
from pathlib import Path

from highrank._version import __version__
from highrank.data.catalog import CorpusInfo
from highrank.data.text8 import is_published
from highrank.errors import UserError
from highrank.files import new_folder, whole_folder
from highrank.progress import OnProgress, no_progress

CHUNK_BYTES = 1 << 16
TIMEOUT_SECONDS = 30
RANGE_NOT_SATISFIABLE = 416


def download_corpus(info: CorpusInfo, folder: Path, on_progress: OnProgress = no_progress) -> None:
    """Download the archive of a corpus and fill a new folder with its files.

    The archive is kept beside the folder until it is complete, so a second call continues an interrupted download.
    """
    if info.embedded:
        raise UserError(f"{info.name} comes with Python: there is nothing to download.")
    if info.archive is None:
        raise UserError(f"{info.name} must be downloaded by hand (licence: {info.licence}): get {info.source}.")
    new_folder(folder)
    partial = folder.with_name(f"{folder.name}.zip.part")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        fetch(info.archive.url, partial, on_progress)
    except (OSError, http.client.HTTPException) as error:  # OSError: network errors, and those of the disk
        raise UserError(f"cannot download {info.archive.url} to {partial}: {error}; try again to continue.") from error
    try:
        with whole_folder(folder) as temporary:
            _extract(partial, info.archive.files, temporary)
            _check(info, temporary)
    except (zipfile.BadZipFile, zlib.error, KeyError) as error:
        partial.unlink()
        raise UserError(
            f"{info.archive.url} is damaged or another version ({error}): try again, or get {info.source}."
        ) from error
    partial.unlink()


def fetch(url: str, path: Path, on_progress: OnProgress = no_progress) -> None:
    """Download a file, or the rest of it if `path` holds its beginning."""
    done = path.stat().st_size if path.exists() else 0
    # Some servers reject the default user agent of urllib.
    headers = {"User-Agent": f"highrank/{__version__}", "Range": f"bytes={done}-"}
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code == RANGE_NOT_SATISFIABLE:  # nothing is left to request
            return
        raise
    with response, open(path, "ab") as file:
        if response.status != http.client.PARTIAL_CONTENT:  # the server sends the whole file
            done = 0
            file.truncate(0)
        length = response.headers.get("Content-Length")
        total = None if length is None else done + int(length)
        on_progress(done, total)
        while chunk := response.read(CHUNK_BYTES):
            file.write(chunk)
            done += len(chunk)
            on_progress(done, total)
    if total is not None and done < total:
        raise ConnectionError(f"the connection ended after {done:,} of {total:,} bytes")


def _extract(archive: Path, files: dict[str, str], folder: Path) -> None:
    with zipfile.ZipFile(archive) as zipped:
        for member, name in files.items():
            with zipped.open(member) as source, open(folder / name, "wb") as target:
                shutil.copyfileobj(source, target)


def _check(info: CorpusInfo, folder: Path) -> None:
    for split, expected in (info.sha256 or {}).items():
        if hashlib.sha256((folder / f"{split}.txt").read_bytes()).hexdigest() != expected:
            raise zipfile.BadZipFile(f"{split}.txt has another checksum than the published one")
    if info.name == "text8" and not is_published((folder / "text8").read_bytes()):
        raise zipfile.BadZipFile("text8 has another checksum than the published one")
