"""The options of the plus recipes in the loop: PartialShuffle, two-tailed averaging, repeated finetuning."""

import pytest
import torch

import highrank
from helpers import CPU, LEARNER, assert_same_run, changed, epochs, losses, weights
from highrank.data.batches import rotate
from highrank.evaluation.perplexity import evaluate
from highrank.recipes import TrainSpec
from highrank.runs import checkpoint as checkpoints
from highrank.runs.export import export_run, import_run
from highrank.runs.folder import Run
from highrank.training.callbacks import Listener
from highrank.training.loop import train
from highrank.training.stages import Training

BOTH = {"partial_shuffle": True, "averaging": "two-tailed"}


class Killed(BaseException):
    """As a kill does, it leaves nothing but the last checkpoint."""


class Killer(Listener):
    def __init__(self, windows):
        self.left = windows

    def window_done(self, row, tokens, loss):
        self.left -= 1
        if self.left < 0:
            raise Killed


def test_a_killed_run_resumes_exactly(toy_corpus, tmp_path):
    recipe = changed(LEARNER, bptt=20, max_epochs=5, finetunes=2, finetune_max_epochs=1, **BOTH)
    whole, cut = Run(tmp_path / "whole"), Run(tmp_path / "cut")
    train(recipe, toy_corpus, whole, CPU)
    kills, outcome = 0, None
    while outcome is None:
        torch.manual_seed(kills)  # whatever the process did in between
        try:
            how = {"checkpoint_every": 0.0, "listener": Killer(13)}
            outcome = train(recipe, toy_corpus, cut, CPU, resume=kills > 0, **how)
        except Killed:
            kills += 1
            assert kills < 100  # every start gets further
    assert outcome == "finished"
    assert kills >= 4
    assert_same_run(whole, cut)
    a, b = checkpoints.load(whole.folder), checkpoints.load(cut.folder)
    assert (a.window_rng, a.progress.offsets, a.n_averaged) == (b.window_rng, b.progress.offsets, b.n_averaged)
    assert a.short[1:] == b.short[1:]
    assert any(line["averaged"] for line in epochs(whole))


def test_every_epoch_rotates_the_columns_anew(toy_corpus, tmp_path):
    training = Training(changed(partial_shuffle=True), toy_corpus, Run(tmp_path), CPU)
    seen = []
    for _ in range(3):
        windows = list(training.windows())
        offsets = training.progress.offsets
        assert len(set(offsets)) > 1  # each column its own
        words = torch.cat([w.words for w in windows] + [windows[-1].targets[-1:]])
        assert words.equal(rotate(training.columns, offsets))
        seen.append(offsets)
    assert seen[0] != seen[1] != seen[2]


def test_the_middle_of_an_epoch_keeps_its_columns(toy_corpus, tmp_path):
    recipe = changed(partial_shuffle=True)
    training = Training(recipe, toy_corpus, Run(tmp_path), CPU)
    losses(training, 3)
    checkpoints.save(tmp_path, training.checkpoint())
    stream, expected = training.stream, losses(training, 3)
    again = Training(recipe, toy_corpus, Run(tmp_path), CPU)
    again.restore(checkpoints.load(tmp_path))
    assert again.stream.equal(stream)
    assert not again.stream.equal(again.columns)
    assert losses(again, 3) == expected


def test_the_best_of_the_averages_is_what_is_kept(toy_corpus, tmp_path):
    """And training with both options learns."""
    run = Run(tmp_path / "run")
    recipe = changed(LEARNER, **BOTH, finetunes=0)
    assert train(recipe, toy_corpus, run, CPU) == "finished"
    told = epochs(run)
    best = min(told, key=lambda e: e["valid_nll"])
    kept = evaluate(highrank.load(run.folder).model, toy_corpus.splits["valid"], recipe.train.eval_batch_size)
    assert kept.nll == pytest.approx(best["valid_nll"], rel=1e-6)
    assert told[-1]["valid_ppl"] < 6
    assert best["averaged"]
    assert best["average_length"] > 1
    assert not all(e["averaged"] for e in told)  # where they fall fast, the weights themselves are better
    assert all((e["average_length"] > 1) == e["averaged"] for e in told)


def test_finetuning_repeats(toy_corpus, tmp_path):
    recipe = changed(max_epochs=2, finetunes=3, finetune_max_epochs=2, **BOTH)
    run = Run(tmp_path / "run")
    assert train(recipe, toy_corpus, run, CPU) == "finished"
    stages = [e["stage"] for e in epochs(run)]
    assert stages == [name for name in ("train", "finetune-1", "finetune-2", "finetune-3") for _ in range(2)]
    assert [s["epochs"] for s in checkpoints.load_progress(run.folder).stages] == [2, 4, 6]


@pytest.mark.parametrize("pause", [3, 5])
def test_an_export_holds_both_averages(toy_corpus, tmp_path, pause):
    """After three epochs the weights themselves are the best ones, after five an average is."""
    recipe = changed(LEARNER, **BOTH)
    run, copy = Run(tmp_path / "run"), Run(tmp_path / "copy")
    train(recipe, toy_corpus, run, CPU, max_epochs=pause)
    saved = checkpoints.load(run.folder)
    assert saved.progress.best_epoch == pause
    assert saved.short.won == (pause == 5)
    export_run(run, tmp_path / "export", torch.float32, 10**6, averages_only=False)
    import_run(tmp_path / "export", copy)
    for a, b in zip(
        highrank.load(run.folder).model.parameters(), highrank.load(copy.folder).model.parameters(), strict=True
    ):
        assert torch.equal(a, b)
    for one in (run, copy):
        train(recipe, toy_corpus, one, CPU, resume=True, max_epochs=pause + 1)
    assert all(torch.equal(a, b) for a, b in zip(weights(run).values(), weights(copy).values(), strict=True))


def test_an_export_of_the_best_weights_alone_begins_new_averages(toy_corpus, tmp_path):
    recipe = changed(LEARNER, **BOTH)
    run, copy = Run(tmp_path / "run"), Run(tmp_path / "copy")
    train(recipe, toy_corpus, run, CPU, max_epochs=6)
    export_run(run, tmp_path / "export", torch.float32, 10**6, averages_only=True)
    import_run(tmp_path / "export", copy)
    assert checkpoints.load(copy.folder).short is None
    train(recipe, toy_corpus, copy, CPU, resume=True, max_epochs=7)
    (line,) = [line for line in epochs(copy) if line["epoch"] == 7]
    one_epoch = line["step"] - epochs(copy)[-2]["step"]
    assert line["average_length"] in (1, one_epoch)


def test_the_options_are_off_by_default():
    spec = TrainSpec(lr=1.0, batch_size=1, seed=0)
    assert (spec.partial_shuffle, spec.averaging) == (False, "nt-asgd")
