"""Warm start: a new run begins with the best weights of another one, whose vocabulary may differ."""

from pathlib import Path

import torch

from highrank.errors import UserError
from highrank.runs.folder import Run
from highrank.training.stages import Training

WORD_PARAMETERS = ("backbone.embedding", "head.weight", "head.bias")  # one row per word


@torch.no_grad()
def warm_start(training: Training, words: list[str], source: Path) -> int:
    """Copy the best weights of the run `source` into a new training, and return how many words both have.

    The embeddings and biases of other words keep their random start.
    """
    run = Run(source)
    run.language_recipe()  # raises a UserError for anything but a run of a language model
    weights = run.best_weights()
    old_ids = {word: i for i, word in enumerate(run.words())}
    common = [(i, old_ids[word]) for i, word in enumerate(words) if word in old_ids]
    new_rows, old_rows = torch.tensor(common, dtype=torch.long).view(-1, 2).T
    for name, parameter in training.model.named_parameters():
        old = weights.get(name)
        first = 1 if name in WORD_PARAMETERS else 0  # the number of words may differ
        if old is None or old.shape[first:] != parameter.shape[first:]:
            raise UserError(f"{source} has another model: its {name} does not fit; use the settings of its model.")
        if name in WORD_PARAMETERS:
            parameter[new_rows.to(parameter.device)] = old[old_rows].to(parameter.device)
        else:
            parameter.copy_(old)
    if training.optimizer.averaging:
        training.optimizer.start_averaging()  # with these weights
    return len(common)
