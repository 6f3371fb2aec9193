"""Diagnose the output layer of a run, or of a Hugging Face model, and read a text with it.

For example:

    from highrank.runs.doctor import diagnose
    record = diagnose("runs/ptb-mos", Path("test.txt"))
    record.weights.unargmaxable.tokens, record.gradient.share.mean
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import torch
from torch import Tensor

from highrank.analysis.diagnosis import (
    GRADIENT_TOKENS,
    DoctorRecord,
    SoftmaxBlocks,
    diagnose_gradient,
    diagnose_weights,
)
from highrank.analysis.hf import analyze_hf, check_causal, in_windows
from highrank.analysis.matrix import WINDOW, Options, default_rows
from highrank.analysis.record import Analysis, thin_spectrum
from highrank.device import find_device
from highrank.errors import UserError
from highrank.files import read_text
from highrank.heads import MoSHead
from highrank.progress import OnStage, no_stages
from highrank.runs.analysis import analyze_run, default_tokens, first_tokens
from highrank.runs.folder import Run
from highrank.runs.provenance import provenance
from highrank.runs.text_model import load

if TYPE_CHECKING:
    from highrank.hf.pretrained import Precision

SHOWN = 100  # unargmaxable tokens written as text


def diagnose(
    model: str,  # a run folder, a folder of transformers, or a name on the hub
    text: Path | None = None,  # UTF-8
    *,
    tokens: int | None = None,  # at most, from the start of the text; None: `default_tokens`
    precision: "Precision | None" = None,  # of a Hugging Face model; None: float64 with a text, else as stored
    device: str | torch.device = "auto",
    on_stage: OnStage = no_stages,
    **options: Unpack[Options],
) -> DoctorRecord:
    """Diagnose the output layer of a model, and its predictions on a text if there is one."""
    device = find_device(device)
    is_run = Run(Path(model)).exists()
    if is_run and precision:
        raise UserError(f"{model} is a run, which is always diagnosed in float64: leave the precision out.")
    if tokens is not None and text is None:
        raise UserError("a number of tokens needs a text to read.")
    content = None if text is None else read_text(text)
    on_stage(f"loading {model}", 0, None)
    if is_run:
        subject = _open_run(Path(model), device)
    else:
        subject = _open_hf(model, device, precision or ("stored" if content is None else "float64"))
    weights = diagnose_weights(subject.weight, subject.bias, on_stage)
    n_tokens = 0
    gradient = None
    predictions = None
    if content is not None:
        if tokens is None:
            tokens = default_tokens(device, subject.max_rows)
        ids = first_tokens(subject.encode(content, tokens), tokens, str(text)).to(device)
        n_tokens = len(ids)
        if subject.head != "other":
            few = ids[: GRADIENT_TOKENS + 1]
            gradient = diagnose_gradient(subject.weight, subject.bias, subject.softmaxes(few[:-1]), few[1:], on_stage)
        predictions = subject.analyze(ids, on_stage, options)
    return DoctorRecord(
        model=subject.name,
        head=subject.head,
        n_components=subject.n_components,
        weights=weights,
        never=subject.words(weights.unargmaxable.tokens[:SHOWN]),
        text=None if text is None else text.name,
        tokens=n_tokens,
        predictions=predictions,
        gradient=gradient,
        provenance=provenance(device),
    )


@dataclass(frozen=True)
class _Subject:
    """A model to diagnose."""

    name: str
    head: str
    n_components: int
    weight: Tensor  # (V, D)
    bias: Tensor | None
    max_rows: int | None  # of log-probabilities to analyse by default
    words: Callable[[list[int]], list[str]]
    encode: Callable[[str, int | None], Tensor]  # a text, or a start of it with at least so many tokens
    softmaxes: Callable[[Tensor], SoftmaxBlocks]
    analyze: Callable[[Tensor, OnStage, Options], Analysis]


def _open_run(folder: Path, device: torch.device) -> _Subject:
    loaded = load(folder, device)
    model = loaded.model.double()
    head = model.head

    def softmaxes(ids: Tensor) -> SoftmaxBlocks:
        state = model.initial_state(1)
        for block in ids.split(WINDOW):
            hidden = model.backbone(block[:, None], state)
            state = hidden.state
            yield head.softmaxes(hidden.g[:, 0])

    return _Subject(
        name=folder.resolve().name,
        head=loaded.recipe.model.head,
        n_components=loaded.recipe.model.n_components,
        weight=head.weight.detach(),
        bias=None if head.bias is None else head.bias.detach(),
        max_rows=default_rows(len(head.weight)),
        words=lambda ids: [loaded.words[i] for i in ids],
        encode=lambda text, tokens: loaded.encode(text),
        softmaxes=softmaxes,
        analyze=lambda ids, on_stage, options: analyze_run(loaded, ids, on_stage, **options),
    )


def _open_hf(name: str, device: torch.device, precision: "Precision") -> _Subject:
    from highrank.hf.pretrained import load_hf  # here, because it needs transformers, and runs do not

    model = load_hf(name, device, precision)
    probe = torch.arange(min(64, len(model.weight)), device=device)
    check_causal(model, probe)

    def softmaxes(ids: Tensor) -> SoftmaxBlocks:
        for hidden in in_windows(model.hidden, ids, model.context):
            if isinstance(model.layer, MoSHead):
                yield model.layer.softmaxes(hidden)
            else:
                yield hidden.new_zeros(len(hidden), 1), hidden[:, None]

    def analyze(ids: Tensor, on_stage: OnStage, options: Options) -> Analysis:
        result = analyze_hf(model, ids, on_stage=on_stage, **options)
        return replace(result, spectrum=thin_spectrum(result.spectrum))

    head = "softmax" if model.ends_in_softmax() else "other"
    n_components = 1
    if isinstance(model.layer, MoSHead):
        head = "mos"
        n_components = model.layer.n_components
    return _Subject(
        name=Path(name).resolve().name,
        head=head,
        n_components=n_components,
        weight=model.weight,
        bias=model.bias,
        max_rows=None if head == "softmax" else default_rows(len(model.weight)),  # its factors fit into memory
        words=model.words,
        encode=model.encode,
        softmaxes=softmaxes,
        analyze=analyze,
    )
