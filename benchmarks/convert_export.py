"""Convert an averages-only export of the first format (shards by rows) to the present one: SOURCE TARGET."""

import hashlib
import json
import shutil
import sys
from dataclasses import fields
from pathlib import Path

import safetensors.torch
import torch

from highrank.training.callbacks import EpochMetrics

source, target = map(Path, sys.argv[1:])
target.mkdir(parents=True)
index = json.loads((source / "index.json").read_text())
assert index["averages_only"]
shards = {path.name: safetensors.torch.load_file(path) for path in sorted(source.glob("shard-*"))}
tensors = {name: torch.cat([shards[shard][name] for shard in names]) for name, names in index["tensors"].items()}
renamed = {n.replace("weights/", "best/").replace("head.mixture.", "head."): t for n, t in tensors.items()}
data = safetensors.torch.save(renamed)
for number, start in enumerate(range(0, len(data), 15_000_000), start=1):
    (target / f"shard-{number:05}.bin").write_bytes(data[start : start + 15_000_000])

state = index["progress"]
pieces = state.pop("pieces")
del state["metrics_bytes"]
state |= {"row": 0, "loss_sum": 0.0, "loss_tokens": 0, "history": [] if index["averaging"] else state["history"]}
form = {"dtype": index["dtype"], "averages_only": True}
pieces[-1]["exported"] = form
state["window_rng"] = index["window_rng"]
checkpoint = {"tensors": "", "best": "", "metrics_bytes": 0, "pieces": pieces, "state": state}
new_index = {
    "format": form,
    "averaging": index["averaging"],
    "sha256": hashlib.sha256(data).hexdigest(),
    "checkpoint": checkpoint,
}
(target / "index.json").write_text(json.dumps(new_index, indent=2) + "\n")
info = json.loads((source / "run.json").read_text())
info.pop("made_by", None)
(target / "run.json").write_text(json.dumps(info, indent=2) + "\n")
shutil.copy(source / "vocabulary.json", target)
keys = {field.name for field in fields(EpochMetrics)}
lines = [json.loads(line) for line in (source / "epochs.jsonl").read_text().splitlines()]
(target / "metrics.jsonl").write_text(
    "".join(json.dumps({k: v for k, v in x.items() if k in keys}) + "\n" for x in lines)
)
