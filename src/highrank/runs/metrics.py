"""metrics.jsonl, with one JSON line per epoch and one every few seconds in between, and TensorBoard events."""

import contextlib
import json
import math
import os
from pathlib import Path
from typing import Any

from highrank.errors import UserError
from highrank.files import naming_file
from highrank.schema import from_json, to_json
from highrank.training.callbacks import Callbacks, EpochMetrics, UpdateMetrics
from highrank.training.loop import Timer

UPDATE_EVERY_SECONDS = 10.0


class MetricsWriter(Callbacks):
    """Appends lines to metrics.jsonl, and to TensorBoard where that package is installed.

    A run that was killed has written lines after its last checkpoint. On resume, `keep_bytes` and `step` of the
    checkpoint tell which lines belong to it, and the others are dropped.
    """

    def __init__(self, folder: Path, keep_bytes: int, step: int) -> None:
        self._path = folder / "metrics.jsonl"
        with naming_file(self._path):
            self._file = open(self._path, "ab")  # noqa: SIM115 (open as long as the run)
            self._file.truncate(min(keep_bytes, self._path.stat().st_size))
            self._file.seek(0, os.SEEK_END)  # truncating does not move the position, which `size` returns
        self._board_folder = folder / "tensorboard"
        with naming_file(self._board_folder):
            self._board = _tensorboard(self._board_folder, step)
        self._since_update = Timer()

    def update_done(self, metrics: UpdateMetrics) -> None:
        if self._since_update.seconds() >= UPDATE_EVERY_SECONDS:
            self._since_update.restart()
            self.write(metrics)

    def epoch_done(self, metrics: EpochMetrics) -> None:
        self.write(metrics)

    def write(self, metrics: UpdateMetrics | EpochMetrics) -> None:
        """Append one line."""
        line = to_json(metrics)
        with naming_file(self._path):
            self._file.write(json.dumps(line).encode() + b"\n")
            self._file.flush()
        if self._board is not None:
            with naming_file(self._board_folder):
                for key, value in line.items():
                    if isinstance(value, float) and math.isfinite(value):
                        self._board.add_scalar(f"{metrics.kind}/{key}", value, metrics.step)

    def size(self) -> int:
        """Return the number of bytes written, after they have reached the disk."""
        with naming_file(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """Close the files. Lines that do not fit on the disk are lost: they belong to no checkpoint."""
        with contextlib.suppress(OSError):
            self._file.close()
        if self._board is not None:
            with contextlib.suppress(OSError):
                self._board.close()


def read_epochs(path: Path) -> list[EpochMetrics]:
    """Return the metrics of completed epochs. A missing file has none, and a line that a kill cut short is ignored."""
    if not path.exists():
        return []
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        data = [json.loads(line) for line in lines if line.endswith("\n")]
        return [from_json(EpochMetrics, line) for line in data if line["kind"] == "epoch"]
    except (KeyError, OSError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error}): restore it, or start a new run.") from None


def _tensorboard(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=step + 1)  # drops events after the checkpoint's step
