"""A run as a few small files, to carry it to another machine and go on there.

    index.json              what is where, the shards' checksums, and where training stands
    run.json                recipe, corpus, provenance;  vocabulary.json: the words
    epochs.jsonl            the lines of metrics.jsonl that tell of whole epochs: the curve so far
    shard-00001.safetensors, ...   each at most the size asked for; a tensor too large for one is split by rows

An export holds the current weights and, once averaging is on, their averages and the best weights if they are others,
in the dtype asked for, with hidden states and generators. `averages_only` keeps, beside the generators, the best
weights alone, which are averages once averaging is on: a quarter of a float32 checkpoint in float16. Training then goes
on from them as finetuning does: averages, and the history of validation that ends a stage, start anew (an average that
goes on from there, where the weights now are, ends worse: docs/results.md). `import_run` gives float32 back.
"""

import hashlib
import json
import math
import shlex
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from highrank.errors import UserError
from highrank.files import read_json, read_tensors, whole_folder, write_json, write_tensors, write_text
from highrank.models import build_model
from highrank.runs import checkpoint as checkpoints
from highrank.runs.checkpoint import Checkpoint
from highrank.runs.folder import INDEX, Run, copy_weights, read_metrics
from highrank.shape import TEXT, YES_OR_NO, wrong
from highrank.training.state import Progress, progress_of

FORMAT = 1
SHAPE = checkpoints.SHAPE | {"averages_only": YES_OR_NO, "dtype": TEXT, "tensors": {}, "sha256?": {}}
COPIED = ("run.json", "vocabulary.json")
EPOCHS = "epochs.jsonl"


def export_run(run: Run, folder: Path, dtype: torch.dtype, max_shard_bytes: int, averages_only: bool) -> list[Path]:
    """Write the export of a run's last checkpoint into `folder`; returns the files written."""
    with whole_folder(folder) as made:
        return [folder / file.name for file in _export(run, made, dtype, max_shard_bytes, averages_only)]


def _export(run: Run, folder: Path, dtype: torch.dtype, max_shard_bytes: int, averages_only: bool) -> list[Path]:
    run.info()  # says so where there is no run
    run.refuse_export()
    saved = checkpoints.load(run.folder)
    begun = saved.progress.best_valid is None  # there are no best weights before the first epoch ends
    best = saved.weights if begun else read_tensors(run.model_file, "trained model")
    if averages_only:
        tensors = {f"weights/{name}": t for name, t in best.items()}
    else:
        tensors = {f"weights/{name}": t for name, t in saved.weights.items()}
        tensors |= {f"averages/{name}": t for name, t in (saved.averages or {}).items()}
        tensors |= {f"short/{name}": t for name, t in (saved.short.weights if saved.short else {}).items()}
        if saved.progress.best_epoch != saved.progress.epoch or saved.progress.row:
            tensors |= {f"best/{name}": t for name, t in best.items()}
    tensors = {name: _rounded(name, t, dtype) for name, t in tensors.items()}
    if not averages_only:
        tensors |= checkpoints.hidden_tensors(saved.hidden)
    # The dropout of the next piece shall not begin with the masks of the first again.
    tensors["rng/torch"] = saved.torch_rng
    if saved.cuda_rng is not None:
        tensors["rng/cuda"] = saved.cuda_rng

    files: list[Path] = []
    places: dict[str, list[str]] = {}  # by tensor: the shards that hold its rows, in order
    for i, shard in enumerate(_shards(tensors, max_shard_bytes), start=1):
        files.append(folder / f"shard-{i:05}.safetensors")
        write_tensors(files[-1], shard)
        for name in shard:
            places.setdefault(name, []).append(files[-1].name)
    for name in COPIED:
        write_json(folder / name, read_json(run.folder / name, name))
    lines = [json.dumps(line) + "\n" for line in run.epochs(saved.progress.epoch)]
    write_text(folder / EPOCHS, "".join(lines))
    index = {
        "format": FORMAT,
        "dtype": str(dtype).removeprefix("torch."),
        "averages_only": averages_only,
        "averaging": saved.averages is not None,
        "n_averaged": saved.n_averaged,
        "short": None if averages_only else checkpoints.about_short(saved.short),
        "window_rng": saved.window_rng,
        "progress": asdict(saved.progress),
        "tensors": places,
        "sha256": {file.name: _sha256(file) for file in files},
    }
    write_json(folder / INDEX, index)
    return [*files, *(folder / name for name in (*COPIED, EPOCHS, INDEX))]


def import_run(folder: Path, run: Run) -> Progress:
    """Make a run from an export: it can be resumed, evaluated and exported again."""
    if run.exists():
        raise UserError(f"{run.folder} already holds a run: choose another --out.")
    with whole_folder(run.folder) as made:
        return _import(folder, Run(made))


def _import(folder: Path, run: Run) -> Progress:
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}: name one made by 'highrank export'.")
    if Run(folder).checkpoint_file.exists():
        made = f"'highrank export {shlex.quote(str(folder))}'"
        raise UserError(f"{folder} is a run, not an export: write one of it with {made}.")
    index = read_json(folder / INDEX, "export (index.json)")
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise UserError(f"{folder / INDEX} is not an export that this version of highrank wrote.")
    try:
        if said := wrong(index, SHAPE):
            raise ValueError(said)
        saved, best = _checkpoint(folder, index)
    except (KeyError, TypeError, ValueError, RuntimeError, OSError) as error:
        raise UserError(f"the export in {folder} is damaged or incomplete ({error}): copy it again.") from None
    source = Run(folder)
    model = build_model(source.recipe().model, len(source.words()))
    for tensors in (saved.weights, best):
        copy_weights(model, tensors, folder)  # names and shapes must fit

    curve = read_metrics(folder / EPOCHS)  # none where an earlier version left it behind
    write_text(run.metrics_file, "".join(json.dumps(line) + "\n" for line in curve))
    saved.progress.metrics_bytes = run.metrics_file.stat().st_size
    checkpoints.save(run.folder, replace(saved, best=best))
    for name in COPIED:
        write_json(run.folder / name, read_json(folder / name, name))
    return saved.progress


def _checkpoint(folder: Path, index: dict[str, Any]) -> tuple[Checkpoint, dict[str, Tensor]]:
    """The checkpoint in an export, and the best weights."""
    shards = {name for names in index["tensors"].values() for name in names}
    loaded = {name: read_tensors(folder / name, "export shard") for name in sorted(shards)}
    for name, digest in (index.get("sha256") or {}).items():  # earlier versions told none
        if _sha256(folder / name) != digest:
            raise UserError(f"{folder / name} is not as it was written: copy it again.")
    tensors = {name: torch.cat([loaded[shard][name] for shard in names]) for name, names in index["tensors"].items()}
    parts = {part: checkpoints.under(f"{part}/", tensors) for part in ("weights", "averages", "short", "best")}
    weights, averages, tail, best = ({name: t.float() for name, t in part.items()} for part in parts.values())
    short = checkpoints.short_average(tail, index.get("short"))  # earlier versions had none
    best = best or (weights if short and not short.won else averages) or weights
    progress = progress_of(index["progress"])
    if progress.pieces:
        progress.pieces[-1]["exported"] = {key: index[key] for key in ("dtype", "averages_only")}
    if index["averages_only"]:
        progress.row, progress.loss_sum, progress.loss_tokens = 0, 0.0, 0
        averages = {}
        if index["averaging"]:
            averages = {name: t.clone() for name, t in weights.items()}
            progress.history = []  # of the old averages: new ones are worse at first, which must not end the stage
    checkpoint = Checkpoint(
        progress=progress,
        weights=weights,
        averages=averages or None,
        n_averaged=0 if index["averages_only"] else index["n_averaged"],
        hidden=checkpoints.hidden_states(checkpoints.under("hidden/", tensors)),
        window_rng=index["window_rng"],
        torch_rng=tensors["rng/torch"] if "rng/torch" in tensors else torch.get_rng_state(),  # earlier versions
        cuda_rng=tensors.get("rng/cuda"),
        short=short,
    )
    return checkpoint, best


def _rounded(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """`tensor` in `dtype`; numbers that it cannot hold would be infinite on the other side."""
    rounded = tensor.to(dtype)
    if not torch.equal(rounded.isfinite(), tensor.isfinite()):
        largest, bound = tensor.abs().max().item(), torch.finfo(dtype).max
        said = f"{name} holds {largest:.3g}, more than the {bound:,.0f} that {str(dtype).removeprefix('torch.')} can"
        raise UserError(f"{said}: export with --dtype bfloat16 or float32.")
    return rounded


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _shards(tensors: dict[str, Tensor], most: int) -> Iterator[dict[str, Tensor]]:
    """Tensors, split by rows where one alone is too large, in dictionaries of at most `most` bytes."""
    room = most - 64 * 1024  # the file's own header
    shard: dict[str, Tensor] = {}
    used = 0
    for name, tensor in tensors.items():
        row = math.ceil(tensor.numel() * tensor.element_size() / max(1, len(tensor)))
        if row > room:
            raise UserError(f"one row of {name} alone takes {row:,} bytes: allow larger shards.")
        start = 0
        while start < len(tensor):
            rows = min(len(tensor) - start, (room - used) // row)
            if rows > 0:
                shard[name] = tensor[start : start + rows]
                used += rows * row
                start += rows
            if start < len(tensor):
                yield shard
                shard, used = {}, 0
    if shard:
        yield shard
