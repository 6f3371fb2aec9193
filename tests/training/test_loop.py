"""The loop: micro-batches, stages, skipping, resuming exactly, and what a run folder holds."""

import json
import math

import pytest
import torch

import highrank
from helpers import CPU, LEARNER, TOY, assert_same_run, changed, epochs, losses
from highrank.errors import UserError
from highrank.recipes import override
from highrank.runs import checkpoint as checkpoints
from highrank.runs.folder import Run, copy_weights
from highrank.runs.record import summarize
from highrank.training.callbacks import Listener
from highrank.training.loop import train
from highrank.training.stages import Training
from highrank.training.step import TRAINING_SLAB_BYTES, Step


def test_training_learns_and_is_repeatable(toy_corpus, tmp_path):
    runs = [Run(tmp_path / name) for name in "ab"]
    for run in runs:
        assert train(LEARNER, toy_corpus, run, CPU) == "finished"
    assert_same_run(*runs)
    assert epochs(runs[0])[0]["valid_ppl"] > 12  # knows nothing of the 15 words
    assert epochs(runs[0])[-1]["valid_ppl"] < 6
    summary = summarize(runs[0], toy_corpus, CPU, "finished")
    assert summary["valid_ppl"] == pytest.approx(min(e["valid_ppl"] for e in epochs(runs[0])), rel=0.05)
    assert summary["seed"] == 7
    assert json.loads(runs[0].summary_file.read_text()) == summary


@pytest.mark.parametrize("head", ["softmax", "mos"])
def test_micro_batches_give_the_gradient_of_the_whole_batch(toy_corpus, tmp_path, head):
    none = {"dropout_input": 0.0, "weight_drop": 0.0, "head": head, "hidden_sizes": (10, 6)}
    gradients, states = [], []
    for micro in (None, 1, 2):
        recipe = changed(model=none, micro_batch_size=micro, clip=1e9)
        training = Training(recipe, toy_corpus, Run(tmp_path), CPU)
        training.model.double()
        training.step = Step(training.model, training.optimizer, recipe.train, CPU)  # its state in float64 too
        training.optimizer.step = lambda *_: None  # keep the weights, so that the second window compares too
        for _, window in zip(range(2), training.windows(), strict=False):
            training.train_window(window)
        gradients.append([p.grad for p in training.model.parameters()])
        states.append(torch.cat([h for state in training.step.hidden for h, _ in state[:1]]))
    for other in (1, 2):
        torch.testing.assert_close(states[other], states[0])
        for a, b in zip(gradients[other], gradients[0], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("micro", [None, 2])
def test_the_loss_of_an_epoch_is_the_mean_over_its_tokens(toy_corpus, tmp_path, micro):
    """Whatever the lengths of its windows and the pieces of its batch: as if the columns were read at once."""
    recipe = changed(model={"dropout_input": 0.0, "weight_drop": 0.0}, micro_batch_size=micro, lr=1e-12)
    training = Training(recipe, toy_corpus, Run(tmp_path), CPU)
    losses(training, 1000)
    stream, progress = training.stream, training.progress
    with torch.no_grad():
        expected = training.model(stream[:-1], stream[1:], training.model.initial_state(4)).nll.mean().item()
    assert progress.loss_tokens == stream[1:].numel()
    assert progress.loss_sum / progress.loss_tokens == pytest.approx(expected, rel=1e-5)


def test_fused_and_reference_training_curves_agree(toy_corpus, tmp_path):
    curves = {}
    for impl in ("reference", "chunked"):
        training = Training(changed(), toy_corpus, Run(tmp_path), CPU)
        training.model.double()
        training.model.head.impl = impl
        training.step = Step(training.model, training.optimizer, TOY.train, CPU)
        curves[impl] = losses(training, 12)
    assert curves["chunked"] == pytest.approx(curves["reference"], rel=1e-9)


def test_the_learning_rate_is_scaled_by_the_windows_length(toy_corpus, tmp_path):
    training = Training(TOY, toy_corpus, Run(tmp_path), CPU)
    rates = []
    training.optimizer.step = lambda lr, *_: rates.append(lr.item())
    windows = [w for _, w in zip(range(3), training.windows(), strict=False)]
    for window in windows:
        training.train_window(window)
    assert rates == [5.0 * len(w.words) / 10 for w in windows]


@pytest.mark.parametrize(("finetune_lr", "expected"), [(2.0, 2.0), (None, 5.0)])
def test_finetuning_has_a_learning_rate_of_its_own_where_the_recipe_gives_one(
    toy_corpus, tmp_path, finetune_lr, expected
):
    training = Training(changed(finetune_lr=finetune_lr), toy_corpus, Run(tmp_path), CPU)
    rates = []
    training.optimizer.step = lambda lr, *_: rates.append(lr.item())
    windows = [w for _, w in zip(range(2), training.windows(), strict=False)]
    for training.progress.stage, window in enumerate(windows):
        training.train_window(window)
    first, second = (len(w.words) / 10 for w in windows)
    assert rates == pytest.approx([5.0 * first, expected * second])


def test_a_step_penalises_dropped_states_by_alpha_and_the_raw_ones_steps_by_beta(toy_corpus, tmp_path, monkeypatch):
    recipe = override(TOY, ["model.dropout_output=0.5", "train.alpha=2", "train.beta=3"])
    training = Training(recipe, toy_corpus, Run(tmp_path), CPU)
    seen = []
    penalty = lambda *arguments: seen.append(arguments) or torch.zeros(())  # noqa: E731
    monkeypatch.setattr("highrank.training.step.activation_penalty", penalty)
    training.train_window(next(iter(training.windows())))
    g, raw, alpha, beta = seen[0]
    assert (alpha, beta) == (2, 3)
    assert (g == 0).float().mean() > 0.2
    assert (raw == 0).sum() == 0


@pytest.mark.parametrize("own", [None, 12345])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_loss_gets_more_memory_on_a_gpu_unless_its_head_has_its_own(toy_corpus, tmp_path, monkeypatch, device, own):
    training = Training(TOY, toy_corpus, Run(tmp_path), CPU)
    head, step, seen = training.model.head, training.step, []
    head.slab_bytes = own
    step.device = torch.device(device)  # after its tensors were made: what is looked at is the choice alone
    loss = lambda g, targets, *, slab_bytes: seen.append(slab_bytes) or torch.zeros(targets.shape)  # noqa: E731
    monkeypatch.setattr(head, "nll", loss)
    window = next(iter(training.windows()))
    step.score(window.words, window.targets, step.hidden[0])
    assert seen == [own or (TRAINING_SLAB_BYTES if device == "cuda" else None)]
    assert head.slab_bytes == own  # the model is as its owner left it


@pytest.mark.parametrize(("clip", "scale"), [(0.25, 1.0), (0.25, 64.0), (1e9, 64.0), (math.inf, 1.0), (math.inf, 64.0)])
def test_gradients_leave_with_a_norm_of_at_most_clip(toy_corpus, tmp_path, clip, scale):
    """Whatever scale they come with; the update is then lr times what is left."""
    training = Training(override(TOY, [f"train.clip={clip}"]), toy_corpus, Run(tmp_path), CPU)
    step = training.step
    step.precision = step.precision._replace(loss_scale=scale)
    for p in training.model.parameters():
        p.grad = torch.randn_like(p) * scale
    true = torch.cat([p.grad.flatten() / scale for p in training.model.parameters()]).norm().item()
    seen = []
    training.optimizer.step = lambda lr, shrink, finite: seen.append((shrink.item(), finite.item()))
    step._apply(torch.tensor(1.0, dtype=torch.float64), step.hidden, 10)
    (shrink, finite), expected = seen[0], min(1.0, clip / true) / scale
    assert finite
    assert shrink == pytest.approx(expected, rel=1e-5)


def test_averaging_starts_by_the_rule_and_finetuning_follows(toy_corpus, tmp_path, monkeypatch):
    """Scripted validation losses drive the stages: SGD, averaging, finetuning, the end."""
    script = iter([5, 4, 3, 4.5, 4.6, 2.5, 2.4, 2.6, 2.7, 2.3, 2.2, 2.35, 2.45])
    monkeypatch.setattr(Training, "validate", lambda self: float(next(script)))
    recipe = changed(nonmono=2, patience=2, max_epochs=50, finetunes=1, finetune_lr=1.0, finetune_max_epochs=50)
    run, messages = Run(tmp_path / "run"), []

    class Messages(Listener):
        def message(self, text):
            messages.append(text)

    assert train(recipe, toy_corpus, run, CPU, listener=Messages()) == "finished"
    stages = [(e["stage"], e["averaged"]) for e in epochs(run)]
    # epoch 4: 4.5 is above min(5, 4) without the last two of [5, 4, 3] -> min([5]) no; epoch 5: 4.6 > min([5, 4]) yes
    assert stages == [("train", False)] * 5 + [("train", True)] * 4 + [("finetune-1", True)] * 4
    assert messages[0].startswith("validation stopped improving")
    assert messages[1] == "stage 0 is over: finetuning from the weights of epoch 7"
    assert checkpoints.load_progress(run.folder).finished
    assert checkpoints.load_progress(run.folder).best_epoch == 11


def test_a_stage_that_ends_by_its_epochs_does_not_blame_validation(toy_corpus, tmp_path):
    messages, listener = [], Listener()
    listener.message = messages.append
    recipe = changed(max_epochs=1, finetunes=1, finetune_max_epochs=1)
    train(recipe, toy_corpus, Run(tmp_path / "run"), CPU, listener=listener)
    assert messages == ["stage 0 is over: finetuning from the weights of epoch 1"]


def test_finetuning_starts_from_the_best_weights(toy_corpus, tmp_path, monkeypatch):
    seen = {}
    original = Training._next_stage

    def watched(self):
        original(self)
        seen["weights"] = {k: v.detach().clone() for k, v in self.model.named_parameters()}
        self.save()
        seen["best"] = highrank.load(self.run.folder).model

    monkeypatch.setattr(Training, "_next_stage", watched)
    recipe = changed(max_epochs=2, finetunes=1, finetune_max_epochs=1)
    train(recipe, toy_corpus, Run(tmp_path / "run"), CPU, max_epochs=2)
    for name, p in seen["best"].named_parameters():
        assert torch.equal(p, seen["weights"][name])


def test_non_finite_windows_are_skipped_and_counted(toy_corpus, tmp_path):
    training = Training(TOY, toy_corpus, Run(tmp_path), CPU)
    assert math.isfinite(losses(training, 1)[0])
    good = [p.detach().clone() for p in training.model.parameters()]
    training.step.hidden[0][0][0].fill_(math.inf)  # poison the carried state
    assert not math.isfinite(losses(training, 1)[0])
    assert training.progress.skipped == 1
    assert training.progress.skipped_in_a_row == 1
    assert all(torch.equal(a, p) for a, p in zip(good, training.model.parameters(), strict=True))
    assert math.isfinite(losses(training, 1)[0])  # and the poison is gone
    assert training.progress.skipped_in_a_row == 0
    assert math.isfinite(training.progress.loss_sum)


def test_persistent_non_finite_windows_stop_with_advice(toy_corpus, tmp_path):
    training = Training(TOY, toy_corpus, Run(tmp_path), CPU)
    training.model.head.bias.data.fill_(math.nan)
    with pytest.raises(UserError, match=r"not finite in 20 windows in a row: lower train.lr \(now 5\)"):
        losses(training, 25)


@pytest.mark.parametrize("stop_after", [7, 37])
def test_an_interrupted_run_resumes_exactly(toy_corpus, tmp_path, stop_after):
    recipe = changed(nonmono=1, max_epochs=3, finetunes=1, finetune_max_epochs=2, micro_batch_size=2)
    whole, cut = Run(tmp_path / "whole"), Run(tmp_path / "cut")
    train(recipe, toy_corpus, whole, CPU)
    asked = 0

    def stop():
        nonlocal asked
        asked += 1
        return asked % stop_after == 0

    outcome = train(recipe, toy_corpus, cut, CPU, should_stop=stop)
    assert outcome == "interrupted"
    rounds = 0
    while outcome == "interrupted":
        torch.manual_seed(rounds)  # whatever the process did in between
        outcome = train(recipe, toy_corpus, cut, CPU, resume=True, should_stop=stop)
        rounds += 1
    assert outcome == "finished"
    assert_same_run(whole, cut)


def test_max_epochs_and_time_budget_pause(toy_corpus, tmp_path):
    run = Run(tmp_path / "run")
    assert train(TOY, toy_corpus, run, CPU, max_epochs=1) == "max-epochs"
    assert train(TOY, toy_corpus, run, CPU, resume=True, time_budget=1e-6) == "time-budget"
    assert train(TOY, toy_corpus, run, CPU, resume=True) == "finished"
    assert len(epochs(run)) == 4


def test_a_start_that_trains_nothing_is_no_piece_of_the_run(toy_corpus, tmp_path):
    run = Run(tmp_path / "run")
    assert train(TOY, toy_corpus, run, CPU, max_epochs=0) == "max-epochs"
    assert checkpoints.load_progress(run.folder).pieces == []
    train(TOY, toy_corpus, run, CPU, resume=True, time_budget=1e-6)
    train(TOY, toy_corpus, run, CPU, resume=True, max_epochs=0)
    assert [piece["outcome"] for piece in checkpoints.load_progress(run.folder).pieces] == ["time-budget"]
    for _ in range(2):
        assert train(TOY, toy_corpus, run, CPU, resume=True) == "finished"
        assert [p["outcome"] for p in checkpoints.load_progress(run.folder).pieces] == ["time-budget", "finished"]


def test_a_pause_is_asked_for_between_epochs_too(toy_corpus, tmp_path):
    """An epoch of a single window has no middle to pause in."""
    recipe = changed(bptt=500, max_over_bptt=0, max_epochs=50)
    asked = iter([False, False, True, False])
    run = Run(tmp_path / "run")
    assert train(recipe, toy_corpus, run, CPU, should_stop=lambda: next(asked)) == "interrupted"
    assert len(epochs(run)) == 3


def test_bfloat16_trains(toy_corpus, tmp_path):
    curves = {}
    for precision in ("float32", "bfloat16"):
        run = Run(tmp_path / precision)
        train(changed(precision=precision, max_epochs=2), toy_corpus, run, CPU)
        curves[precision] = [e["train_nll"] for e in epochs(run)]
    assert curves["bfloat16"] != curves["float32"]  # it really ran in another precision
    assert curves["bfloat16"] == pytest.approx(curves["float32"], rel=0.02)


def test_load_gives_model_words_and_recipe(toy_corpus, tmp_path):
    train(changed(max_epochs=1), toy_corpus, Run(tmp_path / "run"), CPU)
    model, words, recipe = highrank.load(tmp_path / "run")
    assert not model.training
    assert words == toy_corpus.words
    assert recipe.model == TOY.model


def test_a_foreign_model_is_named(toy_corpus, tmp_path):
    run = Run(tmp_path / "run")
    train(changed(max_epochs=1), toy_corpus, run, CPU)
    model = highrank.load(run.folder).model
    tensors = dict(model.named_parameters())
    with pytest.raises(UserError, match=r"has the unexpected tensor extra"):
        copy_weights(model, {**tensors, "extra": torch.zeros(1)}, run.model_file)
    with pytest.raises(UserError, match=r"head.bias is \(3,\) there"):
        copy_weights(model, {**tensors, "head.bias": torch.zeros(3)}, run.model_file)


@pytest.mark.gpu
def test_training_on_cuda(toy_corpus, tmp_path):
    for precision in ("float32", "bfloat16", "mixed"):
        run = Run(tmp_path / precision)
        train(changed(LEARNER, precision=precision), toy_corpus, run, torch.device("cuda"))
        assert epochs(run)[-1]["valid_ppl"] < 6
