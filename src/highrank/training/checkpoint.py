"""Checkpoints in memory: everything that training continues from. `runs/checkpoint.py` keeps them on disk.

On a CPU, a restored training is bit-equal to an uninterrupted one. All ranks take part in a checkpoint, and training
may continue with another number of them: there is one row of hidden state per column of the whole batch, and one random
generator per rank.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from highrank.training.stages import Training
from highrank.training.state import TrainingState, Weights, set_weights


@dataclass
class Checkpoint:
    """The state of training, its tensors and the best weights.

    The tensors are named weights/<parameter>, hidden (one row per column of the batch), rng/torch and rng/cuda, with
    /1, /2, ... for further ranks; those of the optimiser are named by `NTASGD.state`. An export may leave out hidden
    states, which then start from zero, and parts of the optimiser's state (`NTASGD.load_state`).
    """

    state: TrainingState
    tensors: dict[str, Tensor]
    best: Weights | None  # the best weights on validation so far; None before the first epoch has ended


def take_checkpoint(training: Training) -> Checkpoint:
    """Return a checkpoint. Its tensors are shared with the model, not copied. Raise a DivergedError if it diverged."""
    training.read_totals()
    state = replace(
        training.state,
        history=list(training.state.history),
        stages=list(training.state.stages),
        window_rng=dict(training.rng.bit_generator.state),
    )
    weights = {f"weights/{name}": parameter.detach() for name, parameter in training.model.named_parameters()}
    tensors = weights | training.optimizer.state() | _hidden_tensors(training) | _generator_tensors(training)
    return Checkpoint(state, tensors, training.best)


def restore_checkpoint(training: Training, checkpoint: Checkpoint) -> None:
    """Continue from `checkpoint`. Raise an error if its tensors do not fit the model."""
    state = checkpoint.state
    training.state = state
    training.best = checkpoint.best
    training.rng.bit_generator.state = state.window_rng
    training.step.skipped_in_a_row = state.skipped_in_a_row
    training.start_stage()
    set_weights(training.model, under("weights/", checkpoint.tensors))
    training.optimizer.load_state(checkpoint.tensors)
    _restore_hidden(training, checkpoint.tensors)
    _restore_generators(training, checkpoint.tensors)


def under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names start with `prefix`, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


# --- hidden states --------------------------------------------------------------------------------------------------


def _hidden_tensors(training: Training) -> dict[str, Tensor]:
    hidden = training.task.carried
    if training.ranks.connected:
        hidden = torch.cat(training.ranks.gather(hidden.cpu()))
    return {"hidden": hidden}


def _restore_hidden(training: Training, tensors: dict[str, Tensor]) -> None:
    if "hidden" in tensors:
        training.task.carried.copy_(tensors["hidden"][training.ranks.columns(training.train.batch_size)])


# --- random generators ----------------------------------------------------------------------------------------------


def _generator_tensors(training: Training) -> dict[str, Tensor]:
    own = {"rng/torch": torch.get_rng_state()}
    if training.device.type == "cuda":
        own["rng/cuda"] = torch.cuda.get_rng_state(training.device)
    return {
        _rank_name(name, rank): state
        for rank, states in enumerate(training.ranks.gather(own))
        for name, state in states.items()
    }


def _restore_generators(training: Training, tensors: dict[str, Tensor]) -> None:
    rank = training.ranks.rank
    cpu_state = tensors.get(_rank_name("rng/torch", rank))
    if cpu_state is not None:  # a rank that the run did not have before keeps its new generator
        torch.set_rng_state(cpu_state)
    cuda_state = tensors.get(_rank_name("rng/cuda", rank))
    if cuda_state is not None and training.device.type == "cuda":
        torch.cuda.set_rng_state(cuda_state, training.device)


def _rank_name(name: str, rank: int) -> str:
    """Return the name of a rank's tensor. The first rank has no number, like a process that trains alone."""
    return name if rank == 0 else f"{name}/{rank}"
