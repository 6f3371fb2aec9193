"""Results that commands cache in the user's cache folder: gradient statistics and readings.

All of them can be computed again, so a damaged file or an unwritable folder costs time and is never an error. Corpora
in the same folder (`data/`) belong to the user and are not touched.
"""

import contextlib
import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from highrank.analysis.reading import Reading, read
from highrank.data.folders import cache_folder
from highrank.errors import UserError
from highrank.evaluation.dynamic import gradient_statistics
from highrank.files import read_tensors, write_tensors
from highrank.models.language_model import LanguageModel
from highrank.progress import OnProgress, no_progress
from highrank.recipes.recipe import DynamicSettings

KINDS = {  # name of the folder -> contents
    "dynamic": "gradient statistics of runs, for dynamic evaluation",
    "readings": "losses of runs, for compare",
}
READING_FORMAT = 2  # part of the file name: increase it when `Reading` changes


def cached_statistics(
    model: LanguageModel, ids: Tensor, settings: DynamicSettings, on_progress: OnProgress = no_progress
) -> list[Tensor]:
    """Return `gradient_statistics`, from the cache if possible."""
    names = [name for name, _ in model.named_parameters()]

    def compute() -> dict[str, Tensor]:
        statistics = gradient_statistics(model, ids, settings, on_progress)
        return {name: r.cpu() for name, r in zip(names, statistics, strict=True)}

    key = fingerprint(f"{settings.segment} {settings.stats_batch_size}", model, ids)
    stored = _cached("dynamic", key, compute)
    device = next(model.parameters()).device
    return [stored[name].to(device) for name in names]


def cached_reading(model: LanguageModel, ids: Tensor, on_progress: OnProgress = no_progress) -> Reading:
    """Return `analysis.reading.read`, from the cache if possible."""

    def compute() -> dict[str, Tensor]:
        reading = read(model, ids, on_progress)
        return {"nll": reading.nll, "states": reading.states, "window": torch.tensor(reading.window)}

    stored = _cached("readings", fingerprint(str(READING_FORMAT), model, ids), compute)
    return Reading(stored["nll"], stored["states"], int(stored["window"]))


def _cached(kind: str, key: str, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the tensors stored under `key`, or compute and store them."""
    file = cache_folder() / kind / f"{key}.safetensors"
    with contextlib.suppress(UserError):  # missing or damaged
        return read_tensors(file, "cached result")
    tensors = compute()
    with contextlib.suppress(UserError):  # an unwritable folder must not lose the result
        write_tensors(file, tensors)
    return tensors


def fingerprint(options: str, model: LanguageModel, ids: Tensor) -> str:
    """Return a key that changes with the options, the kind of head, the weights and the text.

    It hashes the weights in memory instead of their file, which a run in training may have replaced since.
    """
    digest = hashlib.sha256(f"{options} {type(model.head).__name__}".encode())
    for name, p in model.named_parameters():
        digest.update(f"{name} {tuple(p.shape)} {p.dtype}".encode())
        digest.update(_bytes(p))
    digest.update(_bytes(ids))
    return digest.hexdigest()[:16]


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data  # a view: the weights are not copied


@dataclass(frozen=True)
class CacheUsage:
    """The files of one kind in the cache."""

    folder: Path
    about: str
    files: int
    bytes: int


def cache_usage() -> list[CacheUsage]:
    """Count the cached files of each kind."""
    usage = []
    for kind, about in KINDS.items():
        folder = cache_folder() / kind
        sizes = [file.stat().st_size for file in folder.glob("*")]
        usage.append(CacheUsage(folder, about, len(sizes), sum(sizes)))
    return usage


def clear_cache() -> None:
    """Delete the cached files."""
    for kind in KINDS:
        shutil.rmtree(cache_folder() / kind, ignore_errors=True)
