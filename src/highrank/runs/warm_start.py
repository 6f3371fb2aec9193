"""Warm start: a new run begins with the best weights of another one, whose vocabulary may differ."""

from pathlib import Path

import torch

from highrank.errors import UserError
from highrank.files import read_tensors
from highrank.runs.folder import Run
from highrank.training.stages import Training

OF_WORDS = ("backbone.embedding", "head.weight", "head.bias")  # parameters with one row per word


@torch.no_grad()
def warm_start(training: Training, words: list[str], source: Path) -> int:
    """Copy the best weights of the run `source` into a new training, and return how many words both have.

    The embeddings and biases of other words keep their random start.
    """
    run = Run(source)
    run.language_recipe()  # raises a UserError for anything but a run of a language model
    run.require_run()
    if run.model_file is None:
        raise UserError(f"{source} has no trained weights yet: train it for at least one epoch.")
    weights = read_tensors(run.model_file, "trained model")
    old_ids = {word: i for i, word in enumerate(run.words())}
    common = [(i, old_ids[word]) for i, word in enumerate(words) if word in old_ids]
    new_rows, old_rows = torch.tensor(common, dtype=torch.long).view(-1, 2).T
    for name, parameter in training.model.named_parameters():
        old = weights.get(name)
        of_words = name in OF_WORDS
        first = 1 if of_words else 0  # the number of words may differ
        if old is None or old.shape[first:] != parameter.shape[first:]:
            raise UserError(f"{source} has another model: its {name} does not fit; use the settings of its model.")
        if of_words:
            parameter[new_rows.to(parameter.device)] = old[old_rows].to(parameter.device)
        else:
            parameter.copy_(old)
    if training.optimizer.averaging:
        training.optimizer.start_averaging()  # with these weights
    return len(common)
