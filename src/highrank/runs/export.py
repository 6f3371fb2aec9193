"""Exports: a run as a few small files, to carry it to another machine and continue there.

    index.json                     dtype, checksum, and the content of checkpoint.json
    run.json, vocabulary.json      as in the run folder, and tokenizer.json if it has one
    metrics.jsonl                  the lines of completed epochs
    shard-00001.bin, ...           the tensors; `cat shard-*.bin` gives one safetensors file

An export holds the tensors of the last checkpoint and the best weights; weights and averages are rounded to the
requested dtype. With `averages_only` it holds only the best weights and the random generators, which in float16 takes
about a sixth of the run folder. If the run was averaging, training then continues as finetuning does: new averages
start at these weights, with an empty validation history (continuing the old average instead ends worse:
docs/results.md). Otherwise SGD continues from these weights.
"""

import hashlib
import json
import shlex
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import load as parse_safetensors
from safetensors.torch import save as format_safetensors
from torch import Tensor

from highrank.errors import UserError
from highrank.files import whole_folder, write_bytes, write_json, write_text
from highrank.runs import checkpoint as checkpoints
from highrank.runs.checkpoint import CheckpointFile, ExportFormat
from highrank.runs.folder import Run
from highrank.schema import read_as, to_json
from highrank.training.checkpoint import Checkpoint, under
from highrank.training.state import TrainingState

ROUNDED = ("weights/", "averages/", "short/", "best/")  # tensors that are stored in the export's dtype


@dataclass(frozen=True)
class ExportIndex:
    """The format of index.json."""

    format: ExportFormat
    averaging: bool  # whether the run averages its weights
    sha256: str  # of all shards, in order
    checkpoint: CheckpointFile


def export_run(run: Run, folder: Path, dtype: torch.dtype, max_shard_bytes: int, averages_only: bool) -> list[Path]:
    """Export a run's last checkpoint into a new `folder`, and return the files written."""
    run.require_run()
    file = checkpoints.read(run.folder)
    checkpoint = checkpoints.load(run.folder)
    averaging = bool(under("averages/", checkpoint.tensors))
    if averages_only:
        if checkpoint.best is None:
            raise UserError(f"{run.folder} has no trained weights yet: train it for at least one epoch.")
        epoch_is_pass = run.recipe().train.updates_per_epoch is None
        checkpoint = _best_weights_only(checkpoint, averaging, epoch_is_pass)
    tensors = checkpoint.tensors | {f"best/{name}": tensor for name, tensor in (checkpoint.best or {}).items()}
    data = format_safetensors({name: _round(name, tensor, dtype) for name, tensor in tensors.items()})
    export_format = ExportFormat(str(dtype).removeprefix("torch."), averages_only)
    pieces = file.pieces[:-1] + [replace(piece, exported=export_format) for piece in file.pieces[-1:]]
    file = replace(file, pieces=pieces, state=checkpoint.state)
    index = ExportIndex(export_format, averaging, hashlib.sha256(data).hexdigest(), file)
    with whole_folder(folder) as temporary:
        for number, start in enumerate(range(0, len(data), max_shard_bytes), start=1):
            write_bytes(temporary / f"shard-{number:05}.bin", data[start : start + max_shard_bytes])
        _copy(run.folder, temporary)
        lines = [json.dumps(to_json(metrics)) + "\n" for metrics in run.epochs(file.state.epoch)]
        write_text(temporary / "metrics.jsonl", "".join(lines))
        write_json(temporary / "index.json", to_json(index))
    return sorted(folder.iterdir())


def import_run(folder: Path, run: Run) -> TrainingState:
    """Make a run from an export. It can be resumed, evaluated and exported again."""
    index = _read_index(folder)
    data = b"".join(path.read_bytes() for path in sorted(folder.glob("shard-*.bin")))
    if hashlib.sha256(data).hexdigest() != index.sha256:
        raise UserError(f"the shards in {folder} are damaged or incomplete: copy the export again.")
    tensors = parse_safetensors(data)
    tensors = {name: tensor.float() if name.startswith(ROUNDED) else tensor for name, tensor in tensors.items()}
    best = under("best/", tensors)
    tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("best/")}
    if index.format.averages_only:
        kinds = ("weights", "averages") if index.averaging else ("weights",)
        for kind in kinds:
            tensors |= {f"{kind}/{name}": tensor.clone() for name, tensor in best.items()}
    checkpoint = Checkpoint(index.checkpoint.state, tensors, best or None)
    with whole_folder(run.folder) as temporary:
        _copy(folder, temporary)
        shutil.copyfile(folder / "metrics.jsonl", temporary / "metrics.jsonl")
        metrics_bytes = (temporary / "metrics.jsonl").stat().st_size
        checkpoints.save(temporary, checkpoint, index.checkpoint.pieces, metrics_bytes)
    return checkpoint.state


def _copy(source: Path, target: Path) -> None:
    """Copy the files that a run and its export share; a run without a tokenizer has no tokenizer.json."""
    for name in ("run.json", "vocabulary.json", "tokenizer.json"):
        if name != "tokenizer.json" or (source / name).exists():
            shutil.copyfile(source / name, target / name)


def _best_weights_only(checkpoint: Checkpoint, averaging: bool, epoch_is_pass: bool) -> Checkpoint:
    """Return a checkpoint at the start of an epoch, with the best weights and the generators only.

    If an epoch is a pass over the training data, the current one starts again; otherwise the pass continues. With
    averaging, the validation history is dropped: new averages are worse at first, which must not end the stage.
    """
    state = checkpoint.state
    state = replace(
        state,
        row=0 if epoch_is_pass else state.row,
        epoch_updates=0,
        loss_sum=0.0,
        loss_tokens=0,
        history=[] if averaging else state.history,
    )
    # Without the generators, the next piece would repeat the dropout masks of the first.
    generators = {name: tensor for name, tensor in checkpoint.tensors.items() if name.startswith("rng/")}
    return Checkpoint(state, generators, checkpoint.best)


def _round(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert weights to `dtype`. Raise a UserError for a number outside its range, which would become infinite."""
    if not name.startswith(ROUNDED):
        return tensor
    rounded = tensor.to(dtype)
    if not torch.equal(rounded.isfinite(), tensor.isfinite()):
        largest = tensor.abs().max().item()
        raise UserError(f"{name} contains {largest:.3g}, which {dtype} cannot hold: export in bfloat16 or float32.")
    return rounded


def _read_index(folder: Path) -> ExportIndex:
    if checkpoints.has_checkpoint(folder):
        command = f"highrank export {shlex.quote(str(folder))}"
        raise UserError(f"{folder} is a run, not an export: export it first with '{command}'.")
    return read_as(ExportIndex, folder / "index.json", "export", "copy the export again")
