"""The state of training: its position, counters and histories; and the weights of a model by name."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

Weights = dict[str, Tensor]  # by parameter name; a tied parameter appears once


@dataclass(frozen=True)
class StageResult:
    """The best weights at the end of a stage, and the epochs and seconds of the whole run up to then."""

    stage: int
    epochs: int
    best_epoch: int
    seconds: float
    valid_ppl: float
    test_ppl: float
    ended: str | None = None  # "on request", or None where the recipe's rules ended the stage


@dataclass
class TrainingState:
    """The position of training in its stages, epochs and updates, and the results so far, without tensors."""

    stage: int = 0  # 0: training; 1, 2, ...: finetuning
    stage_epoch: int = 0  # completed epochs of this stage
    epoch: int = 0  # completed epochs of the run
    passes: int = 0  # completed passes over the training data; as many as epochs, except with train.updates_per_epoch
    row: int = 0  # position in the pass: rows of the columns used, or batches of dialogs
    offsets: list[int] = field(default_factory=list)  # first row of each column in this pass (train.partial_shuffle)
    epoch_updates: int = 0  # updates of this epoch
    step: int = 0  # updates of the run
    loss_sum: float = 0.0  # nats, over this epoch
    loss_tokens: int = 0
    skipped: int = 0  # updates skipped because the loss or its gradient was not finite
    skipped_in_a_row: int = 0
    history: list[float] = field(default_factory=list)  # validation losses that the current stopping rule compares with
    best_valid: float | None = None  # nats per token
    best_epoch: int = 0
    annealed: float = 1.0  # the learning rate has been divided by this
    seconds: float = 0.0  # spent on training and validation
    finished: bool = False
    stages: list[StageResult] = field(default_factory=list)  # of the stages that have ended
    # numpy's generator of window lengths and column offsets; up to date in checkpoints only
    window_rng: dict[str, Any] = field(default_factory=dict)


def get_weights(model: nn.Module) -> Weights:
    """Return a copy of every parameter, by name."""
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


@torch.no_grad()
def set_weights(model: nn.Module, weights: Weights) -> None:
    """Copy `weights` into the model. Raise a ValueError unless names and shapes match exactly."""
    parameters = dict(model.named_parameters())
    if different := sorted(parameters.keys() ^ weights.keys()):
        problem = "missing" if different[0] in parameters else "not part of the model"
        raise ValueError(f"tensor {different[0]} is {problem}")
    for name, parameter in parameters.items():
        if parameter.shape != weights[name].shape:
            raise ValueError(
                f"tensor {name} has shape {tuple(weights[name].shape)} instead of {tuple(parameter.shape)}"
            )
        parameter.copy_(weights[name])
