"""One update: the loss, learning rates, penalties, clipping, and windows that are not finite."""

import math

import pytest
import torch

from helpers import CPU, TOY, changed, losses
from highrank.recipes import override
from highrank.training.precision import TRAINING_SLAB_BYTES
from highrank.training.stages import MAX_SKIPPED_IN_A_ROW, DivergedError, Training
from highrank.training.task import Backward


def take(training, n):
    """Return the next n minibatches."""
    return [minibatch for _, minibatch in zip(range(n), training.minibatches(), strict=False)]


def test_the_loss_of_an_epoch_is_the_mean_over_its_tokens(toy_corpus):
    """It does not depend on the window lengths: reading the columns at once gives the same."""
    recipe = changed(model={"dropout_input": 0.0, "weight_drop": 0.0}, lr=1e-12)
    training = Training(recipe, toy_corpus, CPU)
    losses(training, 1000)
    stream = training.task.stream
    with torch.no_grad():
        expected = training.model(stream[:-1], stream[1:], training.model.initial_state(4)).nll.mean().item()
    assert training.state.loss_tokens == stream[1:].numel()
    assert training.state.loss_sum / training.state.loss_tokens == pytest.approx(expected, rel=1e-5)


def test_fused_and_reference_training_curves_agree(toy_corpus):
    curves = {}
    for impl in ("reference", "chunked"):
        training = Training(TOY, toy_corpus, CPU)
        training.model.double()
        training.model.head.impl = impl
        training.task.new_hidden()  # in float64
        curves[impl] = losses(training, 12)
    assert curves["chunked"] == pytest.approx(curves["reference"], rel=1e-9)


def test_the_learning_rate_is_scaled_by_the_length_of_the_window(toy_corpus):
    training = Training(TOY, toy_corpus, CPU)
    rates = []
    training.optimizer.step = lambda lr, *_: rates.append(lr.item())
    windows = take(training, 3)
    for window in windows:
        training.update(window)
    assert rates == [5.0 * len(window.tensors[0]) / 10 for window in windows]


def test_alpha_penalises_dropped_states_and_beta_differences_of_raw_states(toy_corpus, monkeypatch):
    recipe = override(TOY, ["model.dropout_output=0.5", "train.alpha=2", "train.beta=3"])
    training = Training(recipe, toy_corpus, CPU)
    calls = []
    penalty = lambda *arguments: calls.append(arguments) or torch.zeros(())  # noqa: E731
    monkeypatch.setattr("highrank.training.language.activation_penalty", penalty)
    training.update(next(iter(training.minibatches())))
    g, raw, alpha, beta = calls[0]
    assert (alpha, beta) == (2, 3)
    assert (g == 0).float().mean() > 0.2
    assert (raw == 0).sum() == 0


@pytest.mark.parametrize("own", [None, 12345])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_loss_gets_more_memory_on_a_gpu_unless_the_head_sets_its_own(toy_corpus, monkeypatch, device, own):
    training = Training(TOY, toy_corpus, CPU)
    head = training.model.head
    task = training.task
    head.slab_bytes = own
    task.device = torch.device(device)  # only the choice is tested; the tensors stay on the CPU
    seen = []
    loss = lambda g, targets, *, slab_bytes: seen.append(slab_bytes) or torch.zeros(targets.shape)  # noqa: E731
    monkeypatch.setattr(head, "nll", loss)
    (window,) = take(training, 1)
    task.score(*window.tensors, task.hidden)
    assert seen == [own or (TRAINING_SLAB_BYTES if device == "cuda" else None)]
    assert head.slab_bytes == own


@pytest.mark.parametrize(("clip", "scale"), [(0.25, 1.0), (0.25, 64.0), (1e9, 64.0), (math.inf, 1.0), (math.inf, 64.0)])
def test_gradients_are_unscaled_and_clipped(toy_corpus, clip, scale):
    training = Training(override(TOY, [f"train.clip={clip}"]), toy_corpus, CPU)
    step = training.step
    training.task.precision = training.task.precision._replace(loss_scale=scale)
    for p in training.model.parameters():
        p.grad = torch.randn_like(p) * scale
    norm = torch.cat([p.grad.flatten() / scale for p in training.model.parameters()]).norm().item()
    calls = []
    training.optimizer.step = lambda lr, shrink, finite: calls.append((shrink.item(), finite.item()))
    step._apply(Backward(torch.tensor(1.0, dtype=torch.float64), 10, training.task.carried))
    (shrink, finite) = calls[0]
    assert finite
    assert shrink == pytest.approx(min(1.0, clip / norm) / scale, rel=1e-5)


def test_the_loss_samples_as_the_recipe_says(toy_corpus):
    assert Training(TOY, toy_corpus, CPU).model.head.sample_below is None
    assert Training(override(TOY, ["train.sample_below=0.25"]), toy_corpus, CPU).model.head.sample_below == 0.25


def test_a_window_that_is_not_finite_is_skipped_and_counted(toy_corpus):
    training = Training(TOY, toy_corpus, CPU)
    assert math.isfinite(losses(training, 1)[0])
    before = [p.detach().clone() for p in training.model.parameters()]
    training.task.hidden[0][0].fill_(math.inf)
    assert not math.isfinite(losses(training, 1)[0])
    assert training.state.skipped == 1
    assert training.state.skipped_in_a_row == 1
    assert all(torch.equal(a, p) for a, p in zip(before, training.model.parameters(), strict=True))
    assert math.isfinite(losses(training, 1)[0])  # the hidden state was reset
    assert training.state.skipped_in_a_row == 0
    assert math.isfinite(training.state.loss_sum)


def test_training_stops_after_many_windows_that_are_not_finite(toy_corpus):
    training = Training(TOY, toy_corpus, CPU)
    training.model.head.bias.data.fill_(math.nan)
    losses(training, MAX_SKIPPED_IN_A_ROW - 1)
    with pytest.raises(DivergedError, match=r"train\.lr"):
        losses(training, 1)
