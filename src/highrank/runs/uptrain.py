"""`uptrain`: a pretrained model with a mixture beside its softmax, trained on a folder of text for the same steps."""

import gc
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from highrank.errors import UserError
from highrank.files import read_text, whole_folder, write_json
from highrank.hf.mixture import convert
from highrank.hf.pretrained import HfModel, load_hf
from highrank.hf.uptrain import UptrainCurve, UptrainSettings, count_steps, uptrain
from highrank.progress import OnStage, no_stages
from highrank.runs.provenance import Provenance, provenance
from highrank.schema import to_json


@dataclass(frozen=True)
class UptrainRecord:
    """The format of uptrain.json."""

    model: str
    text: str
    settings: UptrainSettings
    steps: int
    mixture: UptrainCurve
    softmax: UptrainCurve
    provenance: Provenance

    @property
    def mixture_name(self) -> str:
        components = self.settings.n_components
        return "layer without a mixture" if components == 1 else f"mixture of {components}"


def uptrain_both(
    name: str,
    text: Path,
    output: Path,
    settings: UptrainSettings,
    device: torch.device,
    *,
    seconds: float,
    steps: int | None,
    on_stage: OnStage = no_stages,
) -> UptrainRecord:
    """Train a model with a mixture and with its softmax, and write uptrain.json and the mixture into `output`.

    The mixture is trained first and saved at once. Without `steps`, both make as many steps as the mixture can in half
    of `seconds`.
    """
    with whole_folder(output) as folder:
        loaded = load_hf(name, device, "float32")
        train = _read(loaded, text / "train.txt", settings)
        valid = _read(loaded, text / "valid.txt", settings)
        torch.manual_seed(settings.seed)
        mixture = convert(loaded.model, settings.n_components)
        if steps is None:
            steps = count_steps(mixture, train, settings, seconds / 2)
        curve = uptrain(mixture, train, valid, steps, settings, partial(on_stage, "mixture"))
        mixture.save_pretrained(folder)
        loaded.tokenizer.save_pretrained(folder)
    del mixture, loaded
    gc.collect()  # the memory of the first model, before the second is loaded
    softmax: Any = load_hf(name, device, "float32").model
    control = uptrain(softmax, train, valid, steps, settings, partial(on_stage, "softmax"))
    record = UptrainRecord(name, str(text), settings, steps, curve, control, Provenance(**provenance(device)))
    write_json(output / "uptrain.json", to_json(record))
    return record


def _read(model: HfModel, path: Path, settings: UptrainSettings) -> Tensor:
    """Return the ids of a text file. Raise a UserError if it is missing or shorter than a window."""
    if not path.exists():
        raise UserError(f"{path} is missing: the folder needs train.txt and valid.txt.")
    ids = model.encode(read_text(path))
    limit = getattr(model.model.config, "max_position_embeddings", None)
    if limit is not None and settings.context > limit:
        raise UserError(f"{model.name} reads at most {limit} tokens: choose a context of at most {limit}.")
    if len(ids) < settings.context:
        raise UserError(f"{path} has {len(ids)} tokens, fewer than one window of {settings.context}: use more text.")
    return ids
