"""Checkpoints on disk, from which a run resumes; on a CPU the result is bit-identical to a run without a break.

    checkpoint.json                    counters and histories, and the names of the two files below
    checkpoint-<step>-<epoch>-<stage>.safetensors
                                       weights, averages, hidden states and random generators
    model-<epoch>.safetensors          the best weights on validation

Tensors are written first, under new names. Replacing checkpoint.json then switches to them in one atomic step, and the
old files are removed. So a process that dies at any moment leaves a complete checkpoint, either the old or the new one.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from highrank.files import read_tensors, write_json, write_tensors
from highrank.runs.provenance import Provenance
from highrank.schema import read_as, to_json
from highrank.training.checkpoint import Checkpoint
from highrank.training.state import TrainingState

TENSOR_FILE = re.compile(r"(checkpoint(-\d+)+|model-\d+)\.safetensors")  # of any checkpoint


@dataclass(frozen=True)
class ExportFormat:
    """How an export stores the tensors of a run."""

    dtype: str
    averages_only: bool


@dataclass(frozen=True, kw_only=True)
class Piece(Provenance):
    """One start of training; a run that was resumed has several pieces."""

    epoch: int  # completed before this piece
    seconds: float  # of training before this piece
    time_budget: float | None
    outcome: str | None  # why the piece ended; None while it trains, and after a kill
    processes: int = 1  # that trained together
    exported: ExportFormat | None = None  # the export that ended this piece, if any


@dataclass(frozen=True)
class CheckpointFile:
    """The format of checkpoint.json."""

    tensors: str  # file name
    best: str | None  # file name of the best weights; None before the first epoch has ended
    metrics_bytes: int  # how much of metrics.jsonl belongs to this checkpoint
    pieces: list[Piece]
    state: TrainingState


def save(folder: Path, checkpoint: Checkpoint, pieces: list[Piece], metrics_bytes: int) -> None:
    """Write a checkpoint into a run folder and remove the previous one."""
    state = checkpoint.state
    # Checkpoints with equal numbers have equal tensors, so a file of this name can safely be written again.
    name = f"checkpoint-{state.step}-{state.epoch}-{state.stage}.safetensors"
    write_tensors(folder / name, checkpoint.tensors)
    best = None
    if checkpoint.best is not None:
        best = f"model-{state.best_epoch}.safetensors"
        if not (has_checkpoint(folder) and read(folder).best == best):  # else the folder has these weights already
            write_tensors(folder / best, checkpoint.best)
    file = CheckpointFile(name, best, metrics_bytes, pieces, state)
    write_json(folder / "checkpoint.json", to_json(file))
    for path in folder.iterdir():
        if path.name not in (name, best) and TENSOR_FILE.fullmatch(path.name):
            path.unlink(missing_ok=True)


def has_checkpoint(folder: Path) -> bool:
    """Return whether the folder holds a checkpoint."""
    return (folder / "checkpoint.json").exists()


def read(folder: Path) -> CheckpointFile:
    """Read checkpoint.json without the tensors."""
    return read_as(CheckpointFile, folder / "checkpoint.json", "checkpoint", "restore it, or start a new run")


def load(folder: Path) -> Checkpoint:
    """Read a checkpoint with its tensors."""
    file = read(folder)
    tensors = read_tensors(folder / file.tensors, "checkpoint file")
    best = None if file.best is None else read_tensors(folder / file.best, "trained model")
    return Checkpoint(file.state, tensors, best)
