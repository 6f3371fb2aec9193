"""The rules of epochs and stages, without training through them."""

import math

import pytest
import torch

from helpers import CPU, TOY, changed, losses
from highrank.data.batches import columns, rotate
from highrank.errors import UserError
from highrank.evaluation.perplexity import evaluate
from highrank.training.checkpoint import restore_checkpoint, take_checkpoint
from highrank.training.stages import Training
from highrank.training.state import get_weights, set_weights


def start(toy_corpus, **changes):
    return Training(changed(**changes), toy_corpus, CPU)


# --- updates --------------------------------------------------------------------------------------------------------


def test_the_seed_decides_weights_and_windows(toy_corpus):
    def first(seed):
        training = start(toy_corpus, seed=seed)
        return training.model.head.weight.sum().item(), [w.end for w in training.minibatches()]

    assert first(3) == first(3)
    assert all(a != b for a, b in zip(first(3), first(4), strict=True))
    assert torch.equal(start(toy_corpus).task.stream, columns(toy_corpus.splits["train"], TOY.train.batch_size))


def test_partial_shuffle_rotates_the_columns_in_every_epoch(toy_corpus):
    training = start(toy_corpus, partial_shuffle=True)
    seen = []
    for _ in range(3):
        windows = list(training.minibatches())
        offsets = training.state.offsets
        assert len(set(offsets)) > 1  # each column has its own
        words = torch.cat([w.tensors[0] for w in windows] + [windows[-1].tensors[1][-1:]])
        assert words.equal(rotate(training.task.columns, offsets))
        seen.append(offsets)
    assert seen[0] != seen[1] != seen[2]


@pytest.mark.parametrize(("finetune_lr", "expected"), [(2.0, 2.0), (None, 5.0)])
def test_finetuning_uses_its_own_learning_rate_if_the_recipe_has_one(toy_corpus, finetune_lr, expected):
    training = start(toy_corpus, finetune_lr=finetune_lr)
    rates = []
    training.optimizer.step = lambda lr, *_: rates.append(lr.item())
    windows = [w for _, w in zip(range(2), training.minibatches(), strict=False)]
    for training.state.stage, window in enumerate(windows):
        training.update(window)
    first, second = (w.lr_factor for w in windows)
    assert rates == pytest.approx([5.0 * first, expected * second])


def test_the_load_penalty_evens_the_prior(toy_corpus):
    training = start(toy_corpus, load_penalty=1.0, alpha=0.0, beta=0.0)
    task = training.task
    g = torch.randn(9, 4, training.model.head.in_features)
    load = training.model.head.components(g)[0].sum(0)  # (B, K)
    expected = load.std() ** 2 / load.mean() ** 2
    torch.testing.assert_close(task.load_variation(g), expected)

    minibatch = next(iter(training.minibatches()))
    prior = training.model.head.prior.weight
    gradients = []
    for load_penalty in (0.0, 1000.0):
        task.train = changed(load_penalty=load_penalty, alpha=0.0, beta=0.0).train
        torch.manual_seed(0)
        prior.grad = None
        loss = task.backward(*minibatch.tensors).loss
        gradients.append(prior.grad)
    assert loss.item() < 10  # the reported loss has no penalty
    assert gradients[1].norm() > 2 * gradients[0].norm()


# --- epochs ---------------------------------------------------------------------------------------------------------


def test_an_epoch_starts_with_zero_hidden_states_and_empty_sums(toy_corpus):
    training = start(toy_corpus)
    losses(training, 3)
    assert all(h.any() for h, _ in training.task.hidden)
    assert training.state.loss_tokens == 4 * training.state.row > 0
    training.end_epoch(3.0)
    assert not training.task.carried.any()
    state = training.state
    assert (state.epoch, state.row, state.loss_sum, state.loss_tokens) == (1, 0, 0.0, 0)


def test_validation_uses_the_columns_of_the_recipe(toy_corpus):
    training = start(toy_corpus, eval_batch_size=7)
    valid = toy_corpus.splits["valid"]
    assert training.validate() == evaluate(training.model, valid, 7).nll != evaluate(training.model, valid).nll


def test_a_validation_loss_of_nan_counts_as_infinite(toy_corpus):
    training = start(toy_corpus)
    training.model.head.bias.data.fill_(math.nan)
    assert training.validate() == math.inf


def test_the_best_weights_are_those_of_the_first_best_epoch(toy_corpus):
    training = start(toy_corpus, max_epochs=50)
    for epoch, valid in enumerate((math.inf, 3.0, 3.0, 2.0, 2.5, 2.0)):
        training.model.head.bias.data.fill_(epoch + 1)
        training.end_epoch(valid)
    assert (training.state.best_valid, training.state.best_epoch) == (2.0, 4)
    assert (training.best["head.bias"] == 4).all()


def test_with_averaging_the_best_weights_are_averages(toy_corpus):
    training = start(toy_corpus, max_epochs=50)
    training.optimizer.start_averaging()
    losses(training, 4)
    training.end_epoch(1.0)
    current = get_weights(training.model)
    for (name, best), average in zip(training.best.items(), training.optimizer.averages, strict=True):
        assert torch.equal(best, average)
        assert not torch.equal(best, current[name])


def test_the_learning_rate_is_annealed_until_that_brings_nothing(toy_corpus):
    training = start(toy_corpus, averaging="none", anneal=4.0, nonmono=2, max_epochs=50)
    divisors = []
    # 4.0 is above min([3.5, 3.0]), 2.9 above min([2.5]); the losses after that stay above the best, 2.5.
    for valid in (3.5, 3.0, 3.2, 3.3, 4.0, 2.5, 2.6, 2.7, 2.9, 2.8, 2.8, 2.8, 2.9):
        assert not training.state.finished
        training.end_epoch(valid)
        divisors.append(training.state.annealed)
    assert divisors == [1.0] * 4 + [4.0] * 4 + [16.0] * 5
    assert training.state.finished
    assert not training.optimizer.averaging


def test_an_annealed_learning_rate_is_used(toy_corpus):
    training = start(toy_corpus)
    training.state.annealed = 4.0
    rates = []
    training.optimizer.step = lambda lr, *_: rates.append(lr.item())
    window = next(training.minibatches())
    training.update(window)
    assert rates == pytest.approx([5.0 / 4 * window.lr_factor])


def test_without_averaging_finetuning_anneals_from_the_best_weights(toy_corpus):
    training = start(
        toy_corpus, averaging="none", nonmono=1, max_epochs=2, finetunes=1, finetune_lr=2.0, finetune_max_epochs=50
    )
    for epoch, valid in enumerate((2.0, 3.0)):
        training.model.head.bias.data.fill_(epoch + 1)
        training.end_epoch(valid)
    assert training.state.stage == 1
    assert (training.model.head.bias == 1).all()
    rates = []
    # Worse than the best from the start: the stage ends only after its learning rate has been annealed.
    for valid in (2.5, 2.4, 2.6, 2.5, 2.4, 2.6):
        rates.append(training.lr)
        assert not training.optimizer.averaging
        assert not training.state.finished
        training.end_epoch(valid)
    assert rates == [2.0] * 3 + [0.5] * 3
    assert training.state.finished


def test_every_stage_discards_the_graphs_of_the_one_before(toy_corpus):
    """A CUDA graph holds the settings of its stage. Without averaging, nothing else tells that they have changed."""
    training = start(toy_corpus, averaging="none", input_noise=0.15)
    noise = []
    training.step.discard_graphs = lambda: noise.append(training.model.backbone.input_noise)
    training.end_epoch(3.0)
    training.start_finetuning()
    assert noise == [0.0]
    restore_checkpoint(training, take_checkpoint(start(toy_corpus, averaging="none", input_noise=0.15)))
    assert noise == [0.0, 0.15]


def test_finetuning_starts_with_the_whole_learning_rate(toy_corpus):
    training = start(toy_corpus, averaging="none")
    training.end_epoch(3.0)
    training.state.annealed = 4.0
    training.start_finetuning()
    assert training.state.annealed == 1.0


def run_epochs(training, passes):
    """Train for some passes, and return the loss of every update and the number of updates of every epoch."""
    seen = []
    updates = []
    while training.state.passes < passes:
        for window in training.minibatches():
            training.update(window)
            seen.append(training.read_totals())
            if training.epoch_is_complete:
                break
        updates.append(training.state.epoch_updates)
        training.end_epoch(3.0)
        assert training.state.loss_tokens == training.state.epoch_updates == 0
    return seen, updates


@pytest.mark.parametrize("partial_shuffle", [False, True])
@pytest.mark.parametrize("length", [4, 1000])
def test_epochs_of_a_number_of_updates_continue_the_pass_and_go_on_to_the_next(toy_corpus, length, partial_shuffle):
    """They see the same windows, with the same carried states, as epochs that are one pass."""
    common = {"max_epochs": 10**6, "nonmono": 10**6, "partial_shuffle": partial_shuffle}
    training = start(toy_corpus, **common, updates_per_epoch=length)
    seen, updates = run_epochs(training, passes=3)
    assert set(updates) == {length}
    expected, passes = run_epochs(start(toy_corpus, **common), passes=training.state.passes + 1)
    assert seen == expected[: len(seen)]
    assert passes[0] % 4 != 0


# --- stages ---------------------------------------------------------------------------------------------------------


def test_every_stage_counts_its_own_epochs(toy_corpus):
    training = start(toy_corpus, max_epochs=2, finetunes=2, finetune_max_epochs=3)
    seen = []
    for epoch in range(8):
        training.end_epoch(5.0 - epoch / 10)
        seen.append((training.state.stage, training.state.stage_epoch, training.state.finished))
    assert seen == [
        (0, 1, False), (1, 0, False),
        (1, 1, False), (1, 2, False), (2, 0, False),
        (2, 1, False), (2, 2, False), (2, 3, True),
    ]  # fmt: skip
    assert [(s.stage, s.epochs, s.best_epoch, s.ended) for s in training.state.stages] == [
        (0, 2, 2, None), (1, 5, 5, None),
    ]  # fmt: skip


def test_every_rule_has_its_own_history(toy_corpus):
    """SGD is stopped by `nonmono`, averaging by `patience`; neither compares with losses before it started."""
    training = start(toy_corpus, nonmono=1, patience=3, max_epochs=50, finetunes=1)
    for valid in (3.0, 2.0, 3.5):
        assert not training.optimizer.averaging
        training.end_epoch(valid)
    assert training.optimizer.averaging
    assert training.state.history == []
    for valid in (4.0, 4.1, 4.2, 4.3):
        assert training.state.stage == 0
        training.end_epoch(valid)
    training.end_epoch(4.4)
    assert training.state.stage == 1
    assert training.state.history == []
    assert int(training.optimizer.n_averaged) == 0


def test_finetuning_starts_from_the_best_weights(toy_corpus):
    training = start(toy_corpus, max_epochs=2, finetunes=1)
    for epoch, valid in enumerate((2.0, 3.0)):
        training.model.head.bias.data.fill_(epoch + 1)
        training.end_epoch(valid)
    assert training.state.stage == 1
    assert (training.model.head.bias == 1).all()
    expected = evaluate(training.model, toy_corpus.splits["test"]).perplexity
    assert training.state.stages[0].test_ppl == expected


def test_input_noise_ends_with_the_first_stage(toy_corpus):
    training = start(toy_corpus, input_noise=0.15, finetunes=2)
    first = take_checkpoint(training)
    assert training.model.backbone.input_noise == 0.15
    losses(training, 1)
    training.end_epoch(3.0)
    training.start_finetuning()
    assert training.model.backbone.input_noise == 0
    resumed = start(toy_corpus, input_noise=0.15, finetunes=2)
    restore_checkpoint(resumed, take_checkpoint(training))
    assert resumed.model.backbone.input_noise == 0
    restore_checkpoint(resumed, first)
    assert resumed.model.backbone.input_noise == 0.15


@pytest.mark.parametrize(("finetune", "expected"), [(0.02, 0.02), (0.0, 0.0), (None, 0.01)])
def test_finetuning_may_have_its_own_adversary(toy_corpus, finetune, expected):
    training = start(toy_corpus, adversarial=0.01, finetune_adversarial=finetune, finetunes=1)
    assert training.model.head.adversarial == 0.01
    losses(training, 1)
    training.end_epoch(3.0)
    training.start_finetuning()
    assert training.model.head.adversarial == expected
    losses(training, 1)


def test_finetuning_on_request_drops_the_current_epoch(toy_corpus):
    training = start(toy_corpus)
    training.end_epoch(3.0)
    losses(training, 2)
    training.start_finetuning()
    state = training.state
    assert (state.stage, state.stage_epoch, state.epoch, state.row, state.loss_tokens) == (1, 0, 1, 0, 0)
    assert not training.task.carried.any()
    assert state.stages[0].ended == "on request"


def test_finetuning_needs_a_completed_epoch(toy_corpus):
    with pytest.raises(UserError):
        start(toy_corpus).start_finetuning()


# --- weights ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [{"extra": torch.zeros(1)}, {"head.bias": torch.zeros(3)}])
def test_weights_of_another_model_raise_an_error_that_names_the_tensor(toy_corpus, change):
    model = start(toy_corpus).model
    with pytest.raises(ValueError, match=next(iter(change))):
        set_weights(model, get_weights(model) | change)
