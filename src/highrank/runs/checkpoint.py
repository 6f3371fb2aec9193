"""Checkpoints on disk, from which a run continues bit for bit on a CPU.

    checkpoint.json                    counters and histories, and the names of the two files below
    checkpoint-<step>....safetensors   weights, averages, hidden states and random generators
    model-<epoch>.safetensors          the best weights on validation

Tensors are written first, under new names. Replacing checkpoint.json then switches to them in one atomic step, and the
old files are removed. So a process that dies at any moment leaves a complete checkpoint, either the old or the new one.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from highrank.errors import UserError
from highrank.files import read_json, read_tensors, write_json, write_tensors
from highrank.ops.lstm import State
from highrank.runs.provenance import Provenance
from highrank.schema import SchemaError, from_json, to_json
from highrank.training.state import Checkpoint, ShortAverage, TrainingState, Weights

OLD_FILES = re.compile(r"(checkpoint(-\d+)+|model-\d+)\.safetensors|\.(checkpoint|model|summary)[-.\w]*\.\d+\.tmp")


@dataclass(frozen=True)
class ExportFormat:
    """The form in which a piece of a run was carried to the next machine."""

    dtype: str
    averages_only: bool


@dataclass(frozen=True, kw_only=True)
class Piece(Provenance):
    """One start of training; a run that was resumed has several pieces."""

    epoch: int  # completed before this piece
    seconds: float  # of training before this piece
    time_budget: float | None
    outcome: str | None  # why the piece ended; None while it trains, and after a kill
    exported: ExportFormat | None = None


@dataclass(frozen=True)
class ShortAverageInfo:
    """A `ShortAverage` without its tensors."""

    n_averaged: int
    long_won: bool
    fresh: bool


@dataclass(frozen=True)
class CheckpointFile:
    """The format of checkpoint.json."""

    tensors: str  # file name
    best: str | None  # file name of the best weights; None before the first epoch has ended
    averaging: bool
    n_averaged: int
    short: ShortAverageInfo | None
    window_rng: dict[str, Any]
    metrics_bytes: int  # how much of metrics.jsonl belongs to this checkpoint
    pieces: list[Piece]
    state: TrainingState


def save(folder: Path, checkpoint: Checkpoint, pieces: list[Piece], metrics_bytes: int) -> None:
    """Write a checkpoint into a run folder and remove the previous one."""
    state = checkpoint.state
    name = f"checkpoint-{state.step}-{state.epoch}-{state.stage}.safetensors"  # tensors change only with one of these
    write_tensors(folder / name, pack(checkpoint))
    best = None
    if checkpoint.best is not None:
        best = f"model-{state.best_epoch}.safetensors"
        if not (has_checkpoint(folder) and read(folder).best == best):
            about = {"epoch": state.best_epoch, "valid_nll": state.best_valid}
            # Only one metadata key: safetensors writes several in random order, and equal models must be equal files.
            write_tensors(folder / best, checkpoint.best, {"highrank": json.dumps(about)})
    short = checkpoint.short
    file = CheckpointFile(
        tensors=name,
        best=best,
        averaging=checkpoint.averages is not None,
        n_averaged=checkpoint.n_averaged,
        short=None if short is None else ShortAverageInfo(short.n_averaged, short.long_won, short.fresh),
        window_rng=checkpoint.window_rng,
        metrics_bytes=metrics_bytes,
        pieces=pieces,
        state=state,
    )
    write_json(folder / "checkpoint.json", to_json(file))
    for path in folder.iterdir():
        if path.name not in (name, best) and OLD_FILES.fullmatch(path.name):
            path.unlink(missing_ok=True)


def has_checkpoint(folder: Path) -> bool:
    """Return whether the folder holds a checkpoint."""
    return (folder / "checkpoint.json").exists()


def read(folder: Path) -> CheckpointFile:
    """Read checkpoint.json without the tensors."""
    path = folder / "checkpoint.json"
    try:
        return from_json(CheckpointFile, read_json(path, "checkpoint"))
    except SchemaError as error:
        raise UserError(f"{path} is damaged: {error}. Restore it, or start a new run.") from None


def load(folder: Path) -> Checkpoint:
    """Read a checkpoint with its tensors."""
    file = read(folder)
    tensors = read_tensors(folder / file.tensors, "checkpoint file")
    best = None if file.best is None else read_tensors(folder / file.best, "trained model")
    try:
        return unpack(file, tensors, best)
    except KeyError as error:
        raise UserError(f"{folder / file.tensors} is damaged: tensor {error} is missing.") from None


def pack(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint, except the best weights, by the names that they have in a file.

    weights/<parameter>    averages/<parameter>    short/<parameter>
    hidden/<micro-batch>/<layer>/h and c           rng/torch, rng/cuda
    """
    tensors = {f"weights/{name}": tensor for name, tensor in checkpoint.weights.items()}
    tensors |= {f"averages/{name}": tensor for name, tensor in (checkpoint.averages or {}).items()}
    if checkpoint.short is not None:
        tensors |= {f"short/{name}": tensor for name, tensor in checkpoint.short.weights.items()}
    for m, layers in enumerate(checkpoint.hidden):
        for i, (h, c) in enumerate(layers):
            tensors[f"hidden/{m}/{i}/h"] = h
            tensors[f"hidden/{m}/{i}/c"] = c
    tensors["rng/torch"] = checkpoint.torch_rng
    if checkpoint.cuda_rng is not None:
        tensors["rng/cuda"] = checkpoint.cuda_rng
    return tensors


def unpack(file: CheckpointFile, tensors: dict[str, Tensor], best: Weights | None) -> Checkpoint:
    """Return the checkpoint of which `pack` returned `tensors`. Raise a KeyError if a tensor is missing."""
    short = None
    if file.short is not None:
        short = ShortAverage(_under("short/", tensors), file.short.n_averaged, file.short.long_won, file.short.fresh)
    return Checkpoint(
        state=file.state,
        weights=_under("weights/", tensors),
        averages=_under("averages/", tensors) if file.averaging else None,
        n_averaged=file.n_averaged,
        short=short,
        best=best,
        hidden=_hidden_states(_under("hidden/", tensors)),
        window_rng=file.window_rng,
        torch_rng=tensors["rng/torch"],
        cuda_rng=tensors.get("rng/cuda"),
    )


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names start with `prefix`, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _hidden_states(tensors: dict[str, Tensor]) -> list[list[State]]:
    """Return hidden states by micro-batch and layer, from tensors named <micro-batch>/<layer>/h and c."""
    keys = sorted({tuple(map(int, name.split("/")[:2])) for name in tensors})
    hidden: list[list[State]] = [[] for _ in {m for m, _ in keys}]
    for m, i in keys:
        hidden[m].append((tensors[f"{m}/{i}/h"], tensors[f"{m}/{i}/c"]))
    return hidden
