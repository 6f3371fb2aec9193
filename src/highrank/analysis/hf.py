"""Analyse a Hugging Face causal language model on a text.

Shapes: ids (T,); hidden states (t, D).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from highrank.analysis.matrix import CONTEXTS, analyze_rows
from highrank.analysis.record import Analysis
from highrank.analysis.softmax import analyze_softmax
from highrank.errors import UserError
from highrank.progress import OnStage, no_stages

if TYPE_CHECKING:  # importing `highrank.hf` needs transformers
    from highrank.hf.pretrained import HfModel


@torch.no_grad()
def analyze_hf(
    model: "HfModel",
    ids: Tensor,  # (T,)
    *,
    contexts: int = CONTEXTS,
    seed: int = 0,
    on_stage: OnStage = no_stages,
) -> Analysis:
    """Analyse a model on a text: from its factors if it ends in a plain softmax, and by its rows otherwise."""
    check_causal(model, ids)
    if model.ends_in_softmax():
        states: list[Tensor] = []
        for block in in_windows(model.hidden, ids, model.context):
            states.append(block)
            on_stage("hidden states", sum(map(len, states)), len(ids))
        hidden = torch.cat(states)
        result = analyze_softmax(
            hidden, model.weight, model.bias, ids=ids, contexts=contexts, seed=seed, on_stage=on_stage
        )
    else:
        if model.weight.dtype != torch.float64:
            raise UserError(
                f"{model.name} does not end in a plain softmax, and the round-off of float32 would look like rank: "
                "use the precision float64."
            )
        rows = in_windows(model.log_prob, ids, model.context)
        result = analyze_rows(rows, ids, contexts=contexts, seed=seed, on_stage=on_stage)
    return replace(
        result,
        name=Path(model.name).name,
        embed_dim=model.weight.shape[1],
        weights_dtype=model.weights_dtype,
        precision=str(model.weight.dtype).removeprefix("torch."),
        context=model.context,
    )


def in_windows(predict: Callable[[Tensor], Tensor], ids: Tensor, context: int) -> Iterator[Tensor]:
    """Yield a model's output for every token, in order, from windows of one context that advance by half of it.

    So each token has at least half a context before it, except at the start of the text.
    """
    step = max(1, context // 2)
    yield predict(ids[:context])
    for done in range(context, len(ids), step):
        start = done - (context - step)
        yield predict(ids[start : start + context])[context - step :].clone()  # a view would keep the other half


@torch.no_grad()
def check_causal(model: "HfModel", ids: Tensor) -> None:
    """Raise a UserError if a prediction changes with the tokens after it."""
    ids = ids[: min(16, model.context)]
    half = len(ids) // 2
    changed = torch.cat([ids[:half], (ids[half:] + 1) % len(model.weight)])
    if half and (model.log_prob(ids)[:half] - model.log_prob(changed)[:half]).abs().max() > 1e-4:
        raise UserError(f"{model.name} uses the words after the one it predicts: choose a causal language model.")
