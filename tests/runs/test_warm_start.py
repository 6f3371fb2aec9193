"""A warm start maps words by their spelling."""

import dataclasses

import torch

from helpers import CPU, TOY, assert_same_run, changed
from highrank.runs.folder import Run
from highrank.runs.training import train_run
from highrank.runs.warm_start import warm_start
from highrank.training.stages import Training


def test_rows_follow_their_words_and_new_words_stay_random(toy_corpus, tmp_path):
    train_run(TOY, toy_corpus, Run(tmp_path / "old"), CPU, max_epochs=1)
    old = Training(TOY, toy_corpus, CPU)
    assert warm_start(old, toy_corpus.words, tmp_path / "old") == toy_corpus.vocab_size
    words = ["zebra", *reversed(toy_corpus.words)]
    splits = {split: ids * 0 + 1 for split, ids in toy_corpus.splits.items()}
    other = dataclasses.replace(toy_corpus, words=words, splits=splits)
    new = Training(changed(seed=3), other, CPU)
    random = new.model.backbone.embedding[0].clone()
    assert warm_start(new, words, tmp_path / "old") == toy_corpus.vocab_size
    assert torch.equal(new.model.backbone.embedding[1:], old.model.backbone.embedding.flip(0))
    assert torch.equal(new.model.head.bias[1:], old.model.head.bias.flip(0))
    assert torch.equal(new.model.backbone.embedding[0], random)
    assert torch.equal(new.model.backbone.layers[0].weight_hh, old.model.backbone.layers[0].weight_hh)


def test_averages_start_at_the_copied_weights(toy_corpus, tmp_path):
    train_run(TOY, toy_corpus, Run(tmp_path / "old"), CPU, max_epochs=1)
    training = Training(changed(averaging="two-tailed", seed=3), toy_corpus, CPU)
    warm_start(training, toy_corpus.words, tmp_path / "old")
    for short, parameter in zip(training.optimizer.short, training.model.parameters(), strict=True):
        assert torch.equal(short, parameter)


def test_a_run_killed_before_its_first_checkpoint_still_starts_from_the_other_run(toy_corpus, tmp_path):
    old, run, whole = (Run(tmp_path / name) for name in ("old", "run", "whole"))
    train_run(TOY, toy_corpus, old, CPU, max_epochs=1)
    run.create(TOY, toy_corpus, CPU, None, init_from=old.folder)
    train_run(TOY, toy_corpus, run, CPU, resume=True, max_epochs=1)
    train_run(TOY, toy_corpus, whole, CPU, init_from=old.folder, max_epochs=1)
    assert_same_run(run, whole)
