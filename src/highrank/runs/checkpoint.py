"""Checkpoints from which a run continues where it was, on a CPU bit for bit.

A checkpoint is a safetensors file (weights, averages, hidden states, random generators), `checkpoint.json` (counters,
histories, position) and, beside them, the best weights on validation, model.safetensors. Tensors are written first,
under names of their own; then checkpoint.json, which names them, is replaced in one step; then new best weights take
model.safetensors' place. So at every moment checkpoint.json belongs to complete files, whenever the process dies: best
weights that a kill left under their own name are those of the run if checkpoint.json knows of them (`model_file`), and
nobody's if not.
"""

import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from highrank.errors import UserError
from highrank.files import read_json, read_tensors, write_json, write_tensors
from highrank.ops.lstm import State
from highrank.shape import TEXT, WHOLE, YES_OR_NO, wrong
from highrank.training.state import Progress, progress_of

FORMAT = 1
SHAPE = {  # what checkpoint.json and an export's index have in common
    "averaging": YES_OR_NO,
    "n_averaged": WHOLE,
    "short?": {"n_averaged": WHOLE, "won": YES_OR_NO, "fresh": YES_OR_NO},
    "window_rng": {},
    "progress": {},
}
MODEL = "model.safetensors"
OURS = re.compile(r"checkpoint(-best)?(-\d+)+\.safetensors|\.(checkpoint|model|summary)[-.\w]*\.\d+\.tmp")


class ShortAverage(NamedTuple):
    """What two-tailed averaging holds beside the long average."""

    weights: dict[str, Tensor]
    n_averaged: int
    won: bool
    fresh: bool


@dataclass
class Checkpoint:
    progress: Progress
    weights: dict[str, Tensor]
    averages: dict[str, Tensor] | None
    n_averaged: int
    hidden: list[list[State]]  # by micro-batch and layer; empty at the start of an epoch
    window_rng: dict[str, Any]  # numpy's generator state
    torch_rng: Tensor
    cuda_rng: Tensor | None
    short: ShortAverage | None = None
    best: dict[str, Tensor] | None = None  # the best weights so far, if the folder does not hold them yet


def save(folder: Path, checkpoint: Checkpoint) -> None:
    tensors = {f"weights/{name}": t for name, t in checkpoint.weights.items()}
    tensors |= {f"averages/{name}": t for name, t in (checkpoint.averages or {}).items()}
    tensors |= {f"short/{name}": t for name, t in (checkpoint.short.weights if checkpoint.short else {}).items()}
    tensors |= hidden_tensors(checkpoint.hidden)
    tensors["rng/torch"] = checkpoint.torch_rng
    if checkpoint.cuda_rng is not None:
        tensors["rng/cuda"] = checkpoint.cuda_rng
    progress = checkpoint.progress
    name = f"checkpoint-{progress.step}-{progress.epoch}-{progress.stage}.safetensors"  # what changes them, changes it
    write_tensors(folder / name, tensors)
    if checkpoint.best is not None:
        about = {"epoch": progress.best_epoch, "valid_nll": progress.best_valid}
        # One metadata key: safetensors writes several in no fixed order, and equal models shall be equal files.
        write_tensors(folder / _new_best(progress), checkpoint.best, {"highrank": json.dumps(about)})
    write_json(
        folder / "checkpoint.json",
        {
            "format": FORMAT,
            "tensors": name,
            "averaging": checkpoint.averages is not None,
            "n_averaged": checkpoint.n_averaged,
            "short": about_short(checkpoint.short),
            "window_rng": checkpoint.window_rng,
            "progress": asdict(progress),
        },
    )
    if (best := model_file(folder)).name != MODEL:
        os.replace(best, folder / MODEL)
    for old in folder.iterdir():  # earlier checkpoints, and what a kill in the middle of a write left behind
        if old.name != name and OURS.fullmatch(old.name):
            old.unlink(missing_ok=True)


def model_file(folder: Path) -> Path:
    """The best weights of a run: model.safetensors, or what a kill kept from becoming that."""
    if any(folder.glob("checkpoint-best-*.safetensors")):
        new = folder / _new_best(load_progress(folder))
        if new.exists():
            return new
    return folder / MODEL


def _new_best(progress: Progress) -> str:
    return f"checkpoint-best-{progress.best_epoch}.safetensors"


def load_progress(folder: Path) -> Progress:
    """Where a run stands, without reading its tensors."""
    data = _read(folder)
    try:
        return progress_of(data["progress"])
    except (TypeError, ValueError) as error:
        raise damaged(folder, error) from None


def load(folder: Path) -> Checkpoint:
    data = _read(folder)
    tensors = read_tensors(folder / data["tensors"], "checkpoint file")
    try:
        return Checkpoint(
            progress=progress_of(data["progress"]),
            weights=under("weights/", tensors),
            averages=under("averages/", tensors) if data["averaging"] else None,
            n_averaged=data["n_averaged"],
            hidden=hidden_states(under("hidden/", tensors)),
            window_rng=data["window_rng"],
            torch_rng=tensors["rng/torch"],
            cuda_rng=tensors.get("rng/cuda"),
            short=short_average(under("short/", tensors), data.get("short")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(folder, error) from None


def _read(folder: Path) -> dict[str, Any]:
    path = folder / "checkpoint.json"
    data = read_json(path, "checkpoint")
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise UserError(f"{path} is not a checkpoint that this version of highrank wrote.")
    if said := wrong(data, SHAPE | {"tensors": TEXT}):
        raise damaged(folder, said)
    return data


def damaged(folder: Path, error: Exception | str) -> UserError:
    return UserError(f"the checkpoint in {folder} is damaged ({error}); restore it or start anew.")


def generator(state: dict[str, Any]) -> np.random.Generator:
    rng = np.random.default_rng()
    rng.bit_generator.state = state
    return rng


def under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names start with `prefix`, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def about_short(short: ShortAverage | None) -> dict[str, Any] | None:
    """The short average without its tensors, for JSON."""
    return None if short is None else {key: value for key, value in short._asdict().items() if key != "weights"}


def short_average(weights: dict[str, Tensor], about: dict[str, Any] | None) -> ShortAverage | None:
    """Its tensors, and what `about_short` told of them."""
    return None if about is None else ShortAverage(weights, **about)


def hidden_tensors(hidden: list[list[State]]) -> dict[str, Tensor]:
    """Hidden states by name: hidden/<micro-batch>/<layer>/h and c."""
    return {
        f"hidden/{m}/{i}/{name}": tensor.contiguous()
        for m, layers in enumerate(hidden)
        for i, state in enumerate(layers)
        for name, tensor in zip("hc", state, strict=True)
    }


def hidden_states(tensors: dict[str, Tensor]) -> list[list[State]]:
    """What `hidden_tensors` named, without the prefix."""
    keys = sorted({tuple(map(int, name.split("/")[:2])) for name in tensors})
    hidden: list[list[State]] = [[] for _ in range(1 + max((m for m, _ in keys), default=-1))]
    for m, i in keys:
        hidden[m].append((tensors[f"{m}/{i}/h"], tensors[f"{m}/{i}/c"]))
    return hidden
