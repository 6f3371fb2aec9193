"""The loop in memory: what it trains, reports and saves, and when it pauses. Saving to disk: tests/runs."""

import pytest
import torch

import highrank.training.loop as module
from helpers import CPU, LEARNER, TOY, changed
from highrank.evaluation.perplexity import evaluate
from highrank.training.callbacks import CallbackList, Callbacks
from highrank.training.loop import Loop, Timer
from highrank.training.stages import Training
from highrank.training.state import get_weights, set_weights


def run(recipe, corpus, device=CPU, callbacks=None, **options):
    """Train a new model. Return the training, its outcome and its epochs' metrics."""
    training = Training(recipe, corpus, device)
    epochs = []
    recorder = Callbacks()
    recorder.epoch_done = epochs.append
    callbacks = CallbackList([recorder, callbacks or Callbacks()])
    outcome = Loop(training, callbacks=callbacks, **options).run()
    return training, outcome, epochs


def script(monkeypatch, losses):
    """Replace validation by scripted losses."""
    values = iter(losses)
    monkeypatch.setattr(Training, "validate", lambda self: float(next(values)))


# --- training -------------------------------------------------------------------------------------------------------


def test_training_learns_and_is_repeatable(toy_corpus):
    (first, outcome, epochs), (second, _, _) = (run(LEARNER, toy_corpus) for _ in range(2))
    assert outcome == "finished"
    assert epochs[0].valid_ppl > 12  # of 15 words
    assert epochs[-1].valid_ppl < 6
    weights = get_weights(second.model)
    assert all(torch.equal(p, weights[name]) for name, p in get_weights(first.model).items())


def test_bfloat16_trains(toy_corpus):
    curves = {}
    for precision in ("float32", "bfloat16"):
        _, _, epochs = run(changed(precision=precision, max_epochs=2), toy_corpus)
        curves[precision] = [metrics.train_nll for metrics in epochs]
    assert curves["bfloat16"] != curves["float32"]
    assert curves["bfloat16"] == pytest.approx(curves["float32"], rel=0.02)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "mixed"])
def test_training_on_cuda(toy_corpus, precision):
    _, _, epochs = run(changed(LEARNER, precision=precision), toy_corpus, torch.device("cuda"))
    assert epochs[-1].valid_ppl < 6


def test_two_tailed_averaging_keeps_the_best_average(toy_corpus):
    recipe = changed(LEARNER, partial_shuffle=True, averaging="two-tailed")
    training, _, epochs = run(recipe, toy_corpus)
    assert epochs[-1].valid_ppl < 6
    best = min(epochs, key=lambda metrics: metrics.valid_nll)
    assert best.averaged
    assert best.average_length > 1
    assert not all(metrics.averaged for metrics in epochs)  # while the loss falls fast, the weights are better
    assert all((metrics.average_length > 1) == metrics.averaged for metrics in epochs)
    set_weights(training.model, training.best)
    valid = evaluate(training.model, toy_corpus.splits["valid"], recipe.train.eval_batch_size)
    assert valid.nll == pytest.approx(best.valid_nll, rel=1e-6)


def test_averaging_starts_by_the_rule_and_finetuning_follows(toy_corpus, monkeypatch):
    script(monkeypatch, [5, 4, 3, 4.5, 4.6, 2.5, 2.4, 2.6, 2.7, 2.3, 2.2, 2.35, 2.45])
    recipe = changed(nonmono=2, patience=2, max_epochs=50, finetunes=1, finetune_lr=1.0, finetune_max_epochs=50)
    training, outcome, epochs = run(recipe, toy_corpus)
    assert outcome == "finished"
    # Epoch 4: 4.5 is not above min([5]). Epoch 5: 4.6 is above min([5, 4]), so averaging starts.
    stages = [(metrics.stage, metrics.averaged) for metrics in epochs]
    assert stages == [("train", False)] * 5 + [("train", True)] * 4 + [("finetune-1", True)] * 4
    assert training.state.best_epoch == 11


def test_finetuning_repeats(toy_corpus):
    recipe = changed(max_epochs=2, finetunes=3, finetune_max_epochs=2, averaging="two-tailed")
    training, _, epochs = run(recipe, toy_corpus)
    names = ("train", "finetune-1", "finetune-2", "finetune-3")
    assert [metrics.stage for metrics in epochs] == [name for name in names for _ in range(2)]
    assert [stage.epochs for stage in training.state.stages] == [2, 4, 6]


# --- pauses ---------------------------------------------------------------------------------------------------------


def test_max_epochs_pauses(toy_corpus):
    training, outcome, _ = run(TOY, toy_corpus, max_epochs=2)
    assert (outcome, training.state.epoch, training.state.finished) == ("max-epochs", 2, False)


def test_a_time_budget_pauses_within_an_epoch(toy_corpus):
    training, outcome, _ = run(TOY, toy_corpus, time_budget=1e-6)
    assert (outcome, training.state.step) == ("time-budget", 1)


def test_should_stop_pauses_within_an_epoch(toy_corpus):
    answers = iter([False, False, True])
    training, outcome, _ = run(TOY, toy_corpus, should_stop=lambda: next(answers))
    assert (outcome, training.state.step) == ("interrupted", 3)


def test_should_stop_pauses_between_epochs(toy_corpus):
    """An epoch of a single window has no middle to pause in."""
    answers = iter([False, False, True])
    recipe = changed(bptt=500, max_over_bptt=0, max_epochs=50)
    training, outcome, _ = run(recipe, toy_corpus, should_stop=lambda: next(answers))
    assert (outcome, training.state.epoch) == ("interrupted", 3)


# --- reports --------------------------------------------------------------------------------------------------------


class Recorder(Callbacks):
    """Records every call."""

    def __init__(self):
        self.calls = []

    def epoch_started(self, epoch, rows, row):
        self.calls.append(("started", epoch, rows, row))

    def update_done(self, metrics):
        self.calls.append(("window", metrics.row, metrics.tokens))
        self.loss = metrics.epoch_nll

    def epoch_done(self, metrics):
        self.calls.append(("done", metrics.epoch))
        self.train_nll = metrics.train_nll

    def message(self, text):
        self.calls.append(("message", text))


def test_callbacks_follow_an_epoch(toy_corpus):
    callbacks = Recorder()
    training, _, _ = run(TOY, toy_corpus, max_epochs=1, callbacks=callbacks)
    rows = len(training.task.stream) - 1
    first, *windows, last = callbacks.calls
    assert first == ("started", 1, rows, 0)
    assert all(call == ("window", call[1], 4 * call[1]) for call in windows)  # four columns
    assert windows[-1][1] == rows
    assert last == ("done", 1)
    assert callbacks.loss == callbacks.train_nll  # the mean of the whole epoch


def test_the_end_of_a_stage_and_the_start_of_averaging_are_reported(toy_corpus, monkeypatch):
    script(monkeypatch, [3, 2, 4, 4, 4])
    callbacks = Recorder()
    recipe = changed(nonmono=1, max_epochs=4, finetunes=1, finetune_max_epochs=1)
    run(recipe, toy_corpus, callbacks=callbacks)
    events = [call for call in callbacks.calls if call[0] in ("done", "message")]
    assert [kind for kind, _ in events] == ["done", "done", "done", "message", "done", "message", "done"]
    assert "averaging" in events[3][1]
    assert "epoch 2" in events[5][1]


def test_checkpoints_come_at_intervals(toy_corpus, monkeypatch):
    """By a clock that advances one second per window: 7 seconds per checkpoint."""
    training = Training(changed(max_epochs=1), toy_corpus, CPU)
    monkeypatch.setattr(module.time, "perf_counter", lambda: float(training.state.step))
    saved = []
    Loop(training, save=lambda checkpoint: saved.append(checkpoint.state), checkpoint_every=7.0).run()
    steps = training.state.step
    assert steps > 14
    assert [state.step for state in saved] == [*range(7, steps, 7)]
    assert [state.seconds for state in saved] == [state.step for state in saved]
    assert training.state.seconds == steps


def test_an_epoch_ends_with_a_checkpoint_if_the_last_one_is_old(toy_corpus, monkeypatch):
    saved = []
    monkeypatch.setattr(module, "EPOCH_CHECKPOINT_SECONDS", 0.0)
    run(TOY, toy_corpus, max_epochs=3, save=lambda checkpoint: saved.append(checkpoint.state))
    assert [(state.epoch, state.row) for state in saved] == [(1, 0), (2, 0), (3, 0)]


def test_a_timer_counts_every_second_once(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    timer = Timer()
    now[0] = 103.0
    assert (timer.seconds(), timer.restart(), timer.seconds()) == (3.0, 3.0, 0.0)
    now[0] = 110.0
    assert timer.restart() == 7.0
