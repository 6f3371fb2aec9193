"""Dialogs as a task: the loss, padding, the order of batches, learning and exact continuation."""

import pytest
import torch

from helpers import CPU, TOY_DIALOG, changed, losses
from highrank.data.dialog import Batch, DialogBatches
from highrank.evaluation.dialog import evaluate_dialogs
from highrank.training.checkpoint import restore_checkpoint, take_checkpoint
from highrank.training.graph import GraphedStep
from highrank.training.loop import Loop
from highrank.training.stages import Training

NO_DROPOUT = {"dropout_input": 0.0}


def gradients(training, batch):
    """Return the loss and the gradients of one batch."""
    training.optimizer.zero_grad()
    result = training.task.backward(*batch)
    return result, [p.grad.clone() for p in training.model.parameters()]


def test_the_loss_is_the_mean_over_real_words(toy_dialogs):
    training = Training(changed(TOY_DIALOG, NO_DROPOUT), toy_dialogs, CPU)
    batch = next(training.minibatches()).tensors
    result, _ = gradients(training, batch)
    nll = training.model(Batch(*batch))
    assert result.tokens == batch.target_mask.sum()
    assert result.loss.item() == pytest.approx(nll[batch.target_mask].mean().item(), rel=1e-6)


def test_every_word_of_an_epoch_has_the_same_weight_in_the_gradient(toy_dialogs):
    training = Training(changed(TOY_DIALOG, NO_DROPOUT), toy_dialogs, CPU)
    batches = [minibatch.tensors for minibatch in training.minibatches()]
    nll = torch.cat([training.model(Batch(*batch))[batch.target_mask] for batch in batches])
    expected = torch.autograd.grad(nll.mean(), list(training.model.parameters()))
    sums = [sum(parts) for parts in zip(*(gradients(training, batch)[1] for batch in batches), strict=True)]
    for whole, total in zip(expected, sums, strict=True):
        torch.testing.assert_close(total / len(batches), whole, rtol=1e-4, atol=1e-7)


def test_padding_changes_neither_the_loss_nor_a_gradient(toy_dialogs):
    training = Training(changed(TOY_DIALOG, NO_DROPOUT), toy_dialogs, CPU)
    dialogs = toy_dialogs.splits["train"]
    short = DialogBatches(dialogs, 4, context_size=3, context_multiple=1, response_multiple=1)
    long = DialogBatches(dialogs, 6, context_size=3)
    examples = short.plan()[-1][:2]
    (one, expected), (other, padded) = (gradients(training, batches.build(examples)) for batches in (short, long))
    assert other.tokens == one.tokens
    assert other.loss.item() == pytest.approx(one.loss.item(), rel=1e-5)
    for a, b in zip(expected, padded, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_every_pass_visits_all_batches_in_an_order_of_its_own(toy_dialogs):
    training = Training(TOY_DIALOG, toy_dialogs, CPU)
    orders = []
    for training.state.passes in (0, 1, 0):
        minibatches = list(training.minibatches())
        assert minibatches[-1].end == len(minibatches) == training.task.pass_length
        orders.append([minibatch.tensors.targets.sum().item() for minibatch in minibatches])
    assert orders[0] == orders[2] != orders[1]
    assert sum(orders[0]) == sum(orders[1])


def test_training_learns_to_answer(toy_dialogs):
    training = Training(changed(TOY_DIALOG, max_epochs=8, lr=0.03), toy_dialogs, CPU)
    before = training.validate()
    Loop(training).run()
    assert training.state.best_valid < 0.7 * before


def test_validation_uses_the_whole_split(toy_dialogs):
    training = Training(TOY_DIALOG, toy_dialogs, CPU)
    batches = DialogBatches(toy_dialogs.splits["valid"], 3, context_size=3)
    expected = evaluate_dialogs(training.model, batches)
    assert training.validate() == pytest.approx(expected.nll, rel=1e-5)
    assert training.task.evaluate("valid").tokens == expected.tokens


@pytest.mark.parametrize("averaging", [False, True])
def test_a_restored_training_continues_bit_for_bit(toy_dialogs, averaging):
    training = Training(TOY_DIALOG, toy_dialogs, CPU)
    if averaging:
        training.optimizer.start_averaging()
    losses(training, 3)
    checkpoint = take_checkpoint(training)
    tensors = {name: tensor.detach().clone() for name, tensor in checkpoint.tensors.items()}
    checkpoint.tensors = dict(sorted(tensors.items()))  # a file returns them in another order
    expected = losses(training, 5)
    restored = Training(TOY_DIALOG, toy_dialogs, CPU)
    restore_checkpoint(restored, checkpoint)
    assert restored.state.row == 3
    assert losses(restored, 5) == expected


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "mixed"])
def test_graphs_and_eager_steps_agree_without_dropout(toy_dialogs, precision):
    recipe = changed(TOY_DIALOG, NO_DROPOUT, precision=precision, lr=0.001)
    graphed, eager = (Training(recipe, toy_dialogs, torch.device("cuda"), graphs=graphs) for graphs in (True, False))
    assert isinstance(graphed.step, GraphedStep)
    expected = losses(eager, 8)
    assert losses(graphed, 8) == pytest.approx(expected, rel=1e-3 if precision != "float32" else 1e-5)
    for x, y in zip(graphed.optimizer.state().values(), eager.optimizer.state().values(), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-2, atol=2e-3)
