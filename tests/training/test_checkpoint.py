"""Checkpoints in memory. Those of several ranks: test_ranks.py; those of dialogs: test_dialog.py."""

import json

import pytest
import torch

from helpers import CPU, changed, losses
from highrank.training.checkpoint import restore_checkpoint, take_checkpoint
from highrank.training.stages import Training


@pytest.mark.parametrize("averaging", ["nt-asgd", "two-tailed"])
def test_a_restored_training_continues_bit_for_bit(toy_corpus, averaging):
    recipe = changed(averaging=averaging, partial_shuffle=True)
    training = Training(recipe, toy_corpus, CPU)
    training.optimizer.start_averaging()
    losses(training, 3)
    training.step.skipped_in_a_row = 2
    checkpoint = take_checkpoint(training)
    restored = Training(recipe, toy_corpus, CPU)
    restore_checkpoint(restored, checkpoint)
    assert restored.step.skipped_in_a_row == 2
    assert restored.state.offsets == training.state.offsets != []
    assert json.dumps(restored.rng.bit_generator.state) == json.dumps(training.rng.bit_generator.state)
    rng = torch.get_rng_state()
    expected = losses(training, 4)
    torch.set_rng_state(rng)
    assert losses(restored, 4) == expected
    for a, b in zip(training.optimizer.state().values(), restored.optimizer.state().values(), strict=True):
        assert torch.equal(a, b)
