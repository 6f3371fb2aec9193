"""What an epoch and a stage come to, without training through them."""

import json
import math

import pytest
import torch

from helpers import CPU, TOY, changed, losses
from highrank.data.batches import columns
from highrank.evaluation.perplexity import evaluate
from highrank.runs import checkpoint as checkpoints
from highrank.runs.folder import Run
from highrank.training.stages import Training


def start(toy_corpus, tmp_path, **changes):
    return Training(changed(**changes), toy_corpus, Run(tmp_path), CPU)


def test_an_epoch_begins_with_an_empty_state_and_a_sum_of_nothing(toy_corpus, tmp_path):
    training = start(toy_corpus, tmp_path)
    losses(training, 3)
    assert all(h.any() for state in training.step.hidden for h, _ in state)
    assert training.progress.loss_tokens == 4 * training.progress.row > 0
    training.end_epoch(3.0)
    assert not any(x.any() for state in training.step.hidden for pair in state for x in pair)
    progress = training.progress
    assert (progress.epoch, progress.row, progress.loss_sum, progress.loss_tokens) == (1, 0, 0.0, 0)


def test_validation_is_in_the_recipes_columns_and_never_nan(toy_corpus, tmp_path):
    training, valid = start(toy_corpus, tmp_path, eval_batch_size=7), toy_corpus.splits["valid"]
    assert training.validate() == evaluate(training.model, valid, 7).nll != evaluate(training.model, valid).nll
    training.model.head.bias.data.fill_(math.nan)
    assert training.validate() == math.inf  # nothing compares with NaN


def test_the_best_weights_are_those_of_the_first_best_epoch(toy_corpus, tmp_path):
    training = start(toy_corpus, tmp_path, max_epochs=50)
    for epoch, valid in enumerate((math.inf, 3.0, 3.0, 2.0, 2.5)):
        training.model.head.bias.data.fill_(epoch + 1)
        training.end_epoch(valid)
    assert (training.progress.best_valid, training.progress.best_epoch) == (2.0, 4)
    training.save()
    kept = start(toy_corpus, tmp_path).model
    Run(tmp_path).load_weights(kept)
    assert (kept.head.bias == 4).all()
    training.model.head.bias.data.fill_(9)
    training.end_epoch(2.0)
    assert training.progress.best_epoch == 4  # as good is not better
    before = Run(tmp_path).model_file.stat().st_mtime_ns
    training.save()
    assert Run(tmp_path).model_file.stat().st_mtime_ns == before  # nothing new to write


def test_once_averaging_is_on_the_averages_are_what_is_kept(toy_corpus, tmp_path):
    training = start(toy_corpus, tmp_path, max_epochs=50)
    training.optimizer.start_averaging()
    losses(training, 4)
    training.end_epoch(1.0)
    names = [name for name, _ in training.model.named_parameters()]
    for name, average, p in zip(names, training.optimizer.averages, training.model.parameters(), strict=True):
        assert torch.equal(training.unsaved_best[name], average)
        assert not torch.equal(average, p)


def test_stages_count_their_own_epochs(toy_corpus, tmp_path):
    training = start(toy_corpus, tmp_path, max_epochs=2, finetunes=2, finetune_max_epochs=3)
    seen = []
    for epoch in range(8):
        training.end_epoch(5.0 - epoch / 10)
        seen.append((training.progress.stage, training.progress.stage_epoch, training.progress.finished))
    assert seen == [
        (0, 1, False), (1, 0, False),
        (1, 1, False), (1, 2, False), (2, 0, False),
        (2, 1, False), (2, 2, False), (2, 3, True),
    ]  # fmt: skip
    assert [(s["stage"], s["epochs"], s["best_epoch"]) for s in training.progress.stages] == [(0, 2, 2), (1, 5, 5)]


def test_a_stages_history_is_its_own(toy_corpus, tmp_path):
    """Plain SGD by `nonmono`, averages by `patience`; neither is held against what came before it."""
    training = start(toy_corpus, tmp_path, nonmono=1, patience=3, max_epochs=50, finetunes=1)
    for valid in (3.0, 2.0, 3.5):
        assert not training.optimizer.averaging
        training.end_epoch(valid)
    assert training.optimizer.averaging
    assert training.progress.history == []
    for valid in (4.0, 4.1, 4.2, 4.3):
        assert training.progress.stage == 0
        training.end_epoch(valid)
    training.end_epoch(4.4)
    assert training.progress.stage == 1
    assert training.progress.history == []
    assert int(training.optimizer.n_averaged) == 0


@pytest.mark.parametrize("averaging", ["nt-asgd", "two-tailed"])
def test_a_restored_run_goes_on_as_if_nothing_had_happened(toy_corpus, tmp_path, averaging):
    changes = {"averaging": averaging, "partial_shuffle": True}
    training = start(toy_corpus, tmp_path, **changes)
    training.optimizer.start_averaging()
    losses(training, 3)
    training.progress.skipped_in_a_row = training.step.skipped_in_a_row = 2
    checkpoints.save(tmp_path, training.checkpoint())
    again = start(toy_corpus, tmp_path, **changes)
    again.restore(checkpoints.load(tmp_path))
    assert again.step.skipped_in_a_row == 2
    assert again.progress == training.progress
    kept, torch_rng = json.dumps(again.rng.bit_generator.state), torch.get_rng_state()
    assert kept == json.dumps(training.rng.bit_generator.state)
    expected = losses(training, 4)
    torch.set_rng_state(torch_rng)
    assert losses(again, 4) == expected
    for a, b in zip(training.optimizer.state(), again.optimizer.state(), strict=True):
        assert torch.equal(a, b)


def test_the_seed_decides_weights_and_windows(toy_corpus, tmp_path):
    def first(seed):
        training = start(toy_corpus, tmp_path, seed=seed)
        return training.model.head.weight.sum().item(), [len(w.words) for w in training.windows()]

    assert first(3) == first(3)
    assert all(a != b for a, b in zip(first(3), first(4), strict=True))
    assert torch.equal(start(toy_corpus, tmp_path).stream, columns(toy_corpus.splits["train"], TOY.train.batch_size))
