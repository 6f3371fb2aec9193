"""Atomic writes: a crash, a kill or a full disk never leaves a partial file behind."""

import contextlib
import errno
import itertools
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from highrank.errors import UserError

if TYPE_CHECKING:  # torch takes seconds to import, and `highrank runs` reads JSON only
    from torch import Tensor

AnyPath = str | os.PathLike[str]

# Names of the temporary files of `replacing` and of safetensors.
TEMPORARY_FILE = re.compile(r"\..+\.\d+\.tmp|\.tmp\w{6}")


def optional_path(path: AnyPath | None) -> Path | None:
    """Return a path that may have been given as a string, or None."""
    return None if path is None else Path(path)


# --- writing --------------------------------------------------------------------------------------------------------


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a binary file."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_tensors(path: Path, tensors: "dict[str, Tensor]") -> None:
    """Write a safetensors file."""
    from safetensors.torch import save_file

    with replacing(path) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode  # safetensors would create a file that only its owner can read
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, temporary)
        temporary.chmod(mode)


def write_with(path: Path, write: Callable[[Path], object]) -> None:
    """Call `write` with a temporary path that has the suffix of `path`, from which matplotlib chooses the format."""
    with replacing(path) as temporary:
        suffixed = temporary.with_suffix(path.suffix)
        try:
            write(suffixed)
            os.replace(suffixed, temporary)
        finally:
            suffixed.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder. After the block, flush that file to disk and rename it to `path`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with naming_file(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            with open(temporary, "r+b") as file:  # Windows can only flush files that are open for writing
                os.fsync(file.fileno())
            os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Turn errors raised while the block writes `path` into a UserError that names the file."""
    try:
        yield
    except OSError as error:
        fix = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "choose another folder"
        raise UserError(f"cannot write {path}: {error.strerror or error}; {fix}.") from error
    except SafetensorError as error:
        raise UserError(f"cannot write {path}: {error}; free some space or choose another folder.") from error


def remove_temporary_files(folder: Path) -> None:
    """Remove the temporary files that killed processes left in a folder, which no other process may be writing to."""
    for path in folder.iterdir():
        if TEMPORARY_FILE.fullmatch(path.name):
            path.unlink(missing_ok=True)


# --- folders --------------------------------------------------------------------------------------------------------


def output_folder(folder: Path) -> Path:
    """Check that `folder` can be written, and return it. Commands call this before they compute anything."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: choose a folder.")
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".{os.getpid()}.tmp"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror or error}; choose another folder.") from error
    finally:
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()
    return folder


def output_file(path: Path) -> Path:
    """Check that the file `path` can be written, and return it, like `output_folder`."""
    if path.is_dir():
        raise UserError(f"{path} is a folder: choose a file.")
    output_folder(path.parent)
    return path


def unused_folder(folder: Path) -> Path:
    """Return `folder`, with a number appended if it exists: run, run-2, run-3, ..."""
    numbered = (folder.with_name(f"{folder.name}-{i}") for i in itertools.count(2))
    return next(path for path in itertools.chain([folder], numbered) if not path.exists())


def new_folder(folder: Path) -> None:
    """Raise a UserError unless `folder` is missing or empty."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: choose a folder.")
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty: choose another folder.")


@contextlib.contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill. After the block, rename it to `folder`, which must be missing or empty."""
    new_folder(folder)
    if folder.resolve() == Path.cwd():  # renaming would leave the user's shell in a deleted folder
        raise UserError(f"{folder} is the current folder: choose a new one below it.")
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        if folder.exists():
            folder.rmdir()
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


# --- reading --------------------------------------------------------------------------------------------------------


def read_text(path: Path) -> str:
    """Read a UTF-8 text file that the user has named."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"there is no file {path}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as UTF-8 text: {error}.") from None


def read_json(path: Path, what: str) -> Any:
    """Parse a JSON file; `what` names its content in error messages."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"there is no {what} at {path}.") from None
    except (OSError, ValueError) as error:
        raise UserError(f"the {what} at {path} is damaged or unreadable ({error}): restore or recreate it.") from error


def read_tensors(path: Path, what: str) -> "dict[str, Tensor]":
    """Read all tensors of a safetensors file, without unpickling; `what` names its content in error messages."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except FileNotFoundError:
        raise UserError(f"there is no {what} at {path}.") from None
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"the {what} at {path} is damaged or not a safetensors file ({error}): restore or recreate it."
        ) from error
