"""Writing files so that a crash, a kill or a full disk never leaves half of one behind."""

import contextlib
import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from highrank.errors import UserError

# Alone on a line, or after its key: inside a text the word stays.
INFINITE = re.compile(r'^( *(?:"(?:[^"\\]|\\.)*": )?-?)Infinity(?=,?$)', re.MULTILINE)


def output_folder(folder: Path) -> Path:
    """`folder`, tried out and left as it was: called first, so that no work is lost to one that cannot be written."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: choose a folder with --out.")
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


def new_folder(folder: Path) -> None:
    """Refuse what holds something already: a run and an export have a folder of their own."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: choose a folder with --out.")
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty: choose another --out.")


@contextlib.contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A folder beside the new `folder` to fill; it takes that name only once it is complete."""
    new_folder(folder)
    if folder.resolve() == Path.cwd():  # another would take its place, and whoever is in it would be nowhere
        raise UserError(f"{folder} is the folder you are in: choose a new one below it with --out.")
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        if folder.exists():
            folder.rmdir()  # it is empty
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` to write to; it takes `path`'s place only once it is complete and on disk."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with open(temporary, "r+b") as file:  # Windows syncs only what is open for writing
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        advice = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "choose another folder"
        raise UserError(f"cannot write {path}: {error.strerror or error}; {advice}.") from error
    except SafetensorError as error:
        raise UserError(f"cannot write {path}: {error}; free some space or choose another folder.") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Infinity, as of a run that diverged, is no JSON; 1e999 is, and is read as infinity here and by most others."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    write_text(path, INFINITE.sub(r"\g<1>1e999", text) + "\n")


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    with replacing(path) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode  # as any new file has it: safetensors would keep everybody else out
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, temporary, metadata)
        temporary.chmod(mode)


def write_with(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` make the file under a temporary name with the same ending (matplotlib chooses a format by it)."""
    with replacing(path) as temporary:
        named = temporary.with_suffix(path.suffix)
        try:
            write(named)
            os.replace(named, temporary)
        finally:
            named.unlink(missing_ok=True)


def read_json(path: Path, what: str) -> Any:
    """The JSON in `path`; `what` names it in the sentence that a missing or damaged file gets."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"there is no {what} at {path}.") from None
    except (OSError, ValueError) as error:
        raise UserError(
            f"the {what} at {path} is damaged or unreadable ({error}); restore it or start anew."
        ) from error


def read_tensors(path: Path, what: str, device: str = "cpu") -> dict[str, Tensor]:
    """All tensors of a safetensors file; nothing is ever unpickled."""
    try:
        with safe_open(path, framework="pt", device=device) as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except FileNotFoundError:
        raise UserError(f"there is no {what} at {path}.") from None
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"the {what} at {path} is damaged or not a safetensors file ({error}); restore it or start anew."
        ) from error
