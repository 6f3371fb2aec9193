"""Continue to train a pretrained model, with its softmax or with a mixture, and follow the validation loss.

Both see the same windows of text, in the same order, with the same schedule of the learning rate.

Shapes: ids (tokens,); windows (B, context).
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from highrank.evaluation.perplexity import in_eval_mode
from highrank.progress import OnProgress, no_progress

TIMED_PASSES = 5  # to estimate the time of a step


@dataclass(frozen=True)
class UptrainSettings:
    n_components: int = 4
    lr: float = 5e-5  # at its peak, after the first tenth of the steps; it then falls linearly
    batch_size: int = 8  # windows
    context: int = 512  # tokens per window
    seed: int = 0
    evaluations: int = 10  # points of the curve after the start
    valid_windows: int = 64  # at most, from the start of the validation text


@dataclass(frozen=True)
class UptrainCurve:
    """The validation loss over the course of training."""

    parameters: int
    step: list[int]
    seconds: list[float]  # of training so far, without the evaluations
    valid_nll: list[float]  # nats per token


def count_steps(model: Any, ids: Tensor, settings: UptrainSettings, seconds: float) -> int:
    """Return how many steps fit into a time, from a few forward and backward passes that do not change the model."""
    model.train()
    windows = sample_windows(ids, settings)
    began = 0.0
    for i in range(TIMED_PASSES + 1):
        if i == 1:  # the first pass compiles and allocates
            _wait(ids)
            began = time.perf_counter()
        _loss(model, next(windows)).backward()
        model.zero_grad()
    _wait(ids)
    return max(1, int(seconds * TIMED_PASSES / (time.perf_counter() - began)))


def uptrain(
    model: Any,
    train: Tensor,  # (tokens,)
    valid: Tensor,  # (tokens,)
    steps: int,
    settings: UptrainSettings,
    on_progress: OnProgress = no_progress,
) -> UptrainCurve:
    """Train a Hugging Face causal language model for some steps of AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), settings.lr, betas=(0.9, 0.95), weight_decay=0.0)
    warm_up = max(1, steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm_up, (steps - step) / max(1, steps - warm_up))
    )
    points = {round(steps * i / settings.evaluations) for i in range(1, settings.evaluations + 1)}
    curve = UptrainCurve(model.num_parameters(), [0], [0.0], [validation_loss(model, valid, settings)])
    model.train()
    seconds = 0.0
    began = time.perf_counter()
    for step, windows in zip(range(1, steps + 1), sample_windows(train, settings), strict=False):
        _loss(model, windows).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        on_progress(step, steps)
        if step in points:
            _wait(train)
            seconds += time.perf_counter() - began
            curve.step.append(step)
            curve.seconds.append(seconds)
            curve.valid_nll.append(validation_loss(model, valid, settings))
            began = time.perf_counter()
    return curve


def sample_windows(ids: Tensor, settings: UptrainSettings) -> Iterator[Tensor]:
    """Yield batches of windows from random places of a text, (B, context), without end."""
    generator = torch.Generator().manual_seed(settings.seed)
    offsets = torch.arange(settings.context)
    while True:
        starts = torch.randint(len(ids) - settings.context + 1, (settings.batch_size, 1), generator=generator)
        yield ids[(starts + offsets).to(ids.device)]


@torch.no_grad()
@in_eval_mode
def validation_loss(model: Any, ids: Tensor, settings: UptrainSettings) -> float:
    """Return the mean loss of the first windows of a text, in nats per token."""
    windows = ids[: len(ids) // settings.context * settings.context].view(-1, settings.context)
    windows = windows[: settings.valid_windows]
    losses = [_loss(model, window[None]).double() for window in windows]  # one at a time: V may be large
    return torch.stack(losses).mean().item()


def _loss(model: Any, windows: Tensor) -> Tensor:
    device = windows.device.type
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        loss: Tensor = model(windows, labels=windows).loss
    return loss


def _wait(ids: Tensor) -> None:
    if ids.device.type == "cuda":
        torch.cuda.synchronize(ids.device)
