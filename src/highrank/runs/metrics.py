"""What a run writes while it trains: JSON lines, and TensorBoard events where that package is installed."""

import json
import math
import os
from pathlib import Path
from typing import Any

from highrank.errors import UserError


class Metrics:
    """Appends lines to metrics.jsonl. On resume, lines past `keep_bytes` (after the checkpoint) are dropped."""

    def __init__(self, folder: Path, keep_bytes: int, step: int) -> None:
        path = folder / "metrics.jsonl"
        try:
            self._file = open(path, "ab")  # noqa: SIM115 (open as long as the run)
            self._file.truncate(min(keep_bytes, path.stat().st_size))
            self._file.seek(0, os.SEEK_END)  # truncating leaves the position where it was, and `size` tells it
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror or error}.") from error
        self._board = _tensorboard(folder / "tensorboard", step)

    def write(self, record: dict[str, Any], step: int) -> None:
        line = {key: _plain(value) for key, value in record.items()}
        try:
            self._file.write(json.dumps(line).encode() + b"\n")
            self._file.flush()
        except OSError as error:
            raise UserError(f"cannot write metrics.jsonl: {error.strerror or error}; free some space.") from error
        if self._board is not None:
            for key, value in line.items():
                if isinstance(value, float):
                    self._board.add_scalar(f"{record['kind']}/{key}", value, step)

    def size(self) -> int:
        """Bytes so far, on disk: what a checkpoint remembers."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _tensorboard(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=step + 1)  # the checkpoint's own step has been told, and stays
