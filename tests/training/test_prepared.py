"""Training on a prepared corpus: sentences in a new order in every pass, and exact resumption within a pass."""

import pytest
import torch

from helpers import CPU, TOY, losses, write_toy_corpus
from highrank.data.corpus import Corpus, load_corpus
from highrank.data.prepare import prepare
from highrank.data.sentences import SentenceColumns
from highrank.data.shards import find_shards
from highrank.training.checkpoint import restore_checkpoint, take_checkpoint
from highrank.training.stages import Training


@pytest.fixture
def corpus(tmp_path):
    prepare(find_shards(write_toy_corpus(tmp_path / "text")), tmp_path / "prepared", max_vocab=20)
    return load_corpus(str(tmp_path / "prepared"))


def start(corpus: Corpus) -> Training:
    """Start training with small groups, so that a pass has several."""
    training = Training(TOY, corpus, CPU)
    task = training.task
    task.columns = task.stream = SentenceColumns(
        corpus.texts["train"], TOY.train.batch_size, TOY.train.seed, group_tokens=150
    )
    return training


def finish_pass(training: Training) -> list[float]:
    result = losses(training, 1000)
    training.end_epoch(1.0)
    return result


def test_a_run_resumes_in_the_middle_of_a_pass(corpus):
    whole = start(corpus)
    expected = finish_pass(whole) + losses(whole, 1000)

    stopped = start(corpus)
    found = finish_pass(stopped) + losses(stopped, 4)
    checkpoint = take_checkpoint(stopped)
    resumed = start(corpus)
    restore_checkpoint(resumed, checkpoint)
    found += losses(resumed, 1000)
    assert len(found) > 12
    assert found == expected


def test_every_pass_has_another_order(corpus):
    training = start(corpus)
    words = []
    for _ in range(2):
        words.append(torch.cat([minibatch.tensors[0] for minibatch in training.minibatches()]))
        training.state.row = training.task.pass_length
        training.end_epoch(1.0)
    assert not words[0].equal(words[1])
    assert words[0].flatten().bincount().sub(words[1].flatten().bincount()).abs().max() <= 4 * TOY.train.batch_size
