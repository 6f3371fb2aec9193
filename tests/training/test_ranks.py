"""Several processes train as one process with the same batch does; dropout is off where results are compared."""

import contextlib
import os
from functools import partial

import pytest
import torch
import torch.distributed as dist

from helpers import CPU, TOY, assert_same_run, changed, losses, write_toy_corpus
from highrank.data.corpus import load_corpus
from highrank.data.prepare import prepare
from highrank.data.shards import find_shards
from highrank.errors import UserError
from highrank.runs import checkpoint as checkpoints
from highrank.runs import launch
from highrank.runs.folder import Run
from highrank.runs.training import train_run
from highrank.training.checkpoint import restore_checkpoint, take_checkpoint
from highrank.training.ranks import ALONE, RankLostError, Ranks
from highrank.training.stages import Training
from highrank.training.state import get_weights
from ranks import in_ranks

SHORT = changed(max_epochs=2)
NO_DROPOUT = {"dropout_input": 0.0, "weight_drop": 0.0}
SETTINGS = {
    "plain": {},
    "shuffled": {"partial_shuffle": True},
    "two-tailed": {"averaging": "two-tailed"},
    "load penalty": {"load_penalty": 1.0},
}


def start(ranks, recipe, corpus, checkpoint=None):
    """Return a training in float64, where the order of a sum does not matter to a test."""
    training = Training(recipe, corpus, CPU, ranks=ranks)
    training.model.double()
    training.task.new_hidden()
    training.optimizer.start_averaging()
    if checkpoint is not None:
        restore_checkpoint(training, checkpoint)
    return training


def results(ranks, recipe, corpus, checkpoint=None, updates=5):
    """Train for some updates and a validation. Return losses and their sums, weights, averages and a checkpoint."""
    training = start(ranks, recipe, corpus, checkpoint)
    seen = losses(training, updates)
    seen += [training.validate(), training.state.loss_sum, training.state.loss_tokens]
    return seen, get_weights(training.model), training.optimizer.averages, take_checkpoint(training)


def assert_close(a, b):
    assert a[0] == pytest.approx(b[0], rel=1e-10)
    for name, weight in a[1].items():
        assert torch.allclose(weight, b[1][name], rtol=1e-9, atol=1e-12), name
    assert all(torch.allclose(x, y, rtol=1e-9, atol=1e-12) for x, y in zip(a[2], b[2], strict=True))


@pytest.mark.parametrize("size", [2, 3])  # of 4 columns: 2 + 2 and 1 + 1 + 2
@pytest.mark.parametrize("settings", SETTINGS)
def test_several_ranks_train_like_one_process(tmp_path, toy_corpus, size, settings):
    recipe = changed(model=NO_DROPOUT, **SETTINGS[settings])
    alone = results(ALONE, recipe, toy_corpus)
    together = in_ranks(size, tmp_path, results, recipe, toy_corpus)
    for result in together:
        assert_close(alone, result)
        assert all(torch.equal(weight, together[0][1][name]) for name, weight in result[1].items())


def test_several_ranks_share_the_columns_of_a_prepared_corpus(tmp_path):
    prepare(find_shards(write_toy_corpus(tmp_path / "text")), tmp_path / "prepared", max_vocab=20)
    corpus = load_corpus(str(tmp_path / "prepared"))
    recipe = changed(model=NO_DROPOUT)
    alone = results(ALONE, recipe, corpus)
    for result in in_ranks(3, tmp_path, results, recipe, corpus):
        assert_close(alone, result)


@pytest.mark.parametrize(("before", "after"), [(2, 3), (2, 1), (1, 2)])
def test_a_run_continues_with_another_number_of_ranks(tmp_path, toy_corpus, before, after):
    recipe = changed(model=NO_DROPOUT)

    def run(size, checkpoint=None):
        work = partial(results, recipe=recipe, corpus=toy_corpus, checkpoint=checkpoint, updates=3)
        return work(ALONE) if size == 1 else in_ranks(size, tmp_path, work)[0]

    *_, checkpoint = run(before)
    *_, own = run(1)
    assert_close(run(1, own), run(after, checkpoint))


def test_the_same_number_of_ranks_continues_exactly(tmp_path, toy_corpus):
    """With dropout: every rank has masks of its own, and finds its generator in the checkpoint."""
    *_, checkpoint = in_ranks(2, tmp_path, results, TOY, toy_corpus, None, 3)[0]
    assert not torch.equal(checkpoint.tensors["rng/torch"], checkpoint.tensors["rng/torch/1"])
    whole = in_ranks(2, tmp_path, results, TOY, toy_corpus, None, 6)[0]
    resumed = in_ranks(2, tmp_path, results, TOY, toy_corpus, checkpoint, 3)[0]
    assert resumed[0] == whole[0][3:]
    assert all(torch.equal(weight, resumed[1][name]) for name, weight in whole[1].items())


def test_more_ranks_than_columns_fail(toy_corpus):
    with pytest.raises(UserError, match=r"train\.batch_size"):
        Training(TOY, toy_corpus, CPU, ranks=Ranks(0, 5))


@pytest.mark.gpu
def test_nccl_sums_gradients_inside_a_cuda_graph(tmp_path, toy_corpus):
    """One rank in a group of its own: the sums change nothing, but they are captured."""
    device = torch.device("cuda", torch.cuda.current_device())
    dist.init_process_group("cpu:gloo,cuda:nccl", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        seen = []
        for ranks in (ALONE, Ranks(connected=True)):
            training = Training(changed(model=NO_DROPOUT, window_multiple=5), toy_corpus, device, ranks=ranks)
            seen.append(losses(training, 8))
        assert seen[0] == pytest.approx(seen[1], rel=1e-4)
    finally:
        dist.destroy_process_group()


# --- runs -----------------------------------------------------------------------------------------------------------


def train_until(ranks, folder, corpus, rank, stop, resume=False):
    """Train a run of two epochs until `stop` returns True in one rank; return the outcome, or the error."""
    should_stop = stop if ranks.rank == rank else lambda: False
    try:
        return train_run(SHORT, corpus, Run(folder), CPU, resume=resume, should_stop=should_stop, ranks=ranks)
    except UserError as error:
        return str(error)


def after(calls, act):
    """Return a function that does nothing so many times, and then calls `act`."""
    answers = iter([False] * calls)
    return lambda: next(answers, None) is None and act()


def test_a_signal_to_one_rank_saves_and_stops_all(tmp_path, toy_corpus):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    (tmp_path / "ranks").mkdir()
    never = lambda: False  # noqa: E731
    assert in_ranks(2, tmp_path / "ranks", train_until, whole, toy_corpus, 1, never) == ["finished"] * 2
    stop = after(3, lambda: True)
    assert in_ranks(2, tmp_path / "ranks", train_until, stopped, toy_corpus, 1, stop) == ["interrupted"] * 2
    assert checkpoints.read(stopped).state.step == 4
    assert in_ranks(2, tmp_path / "ranks", train_until, stopped, toy_corpus, 1, never, True) == ["finished"] * 2
    assert_same_run(Run(whole), Run(stopped))
    assert [piece.processes for piece in checkpoints.read(stopped).pieces] == [2, 2]


@pytest.mark.parametrize("rank", [0, 1])
def test_the_death_of_a_rank_ends_the_others_with_a_checkpoint_to_resume(tmp_path, toy_corpus, rank):
    (tmp_path / "ranks").mkdir()
    die = after(20, partial(os._exit, 9))
    ends = in_ranks(2, tmp_path / "ranks", train_until, tmp_path / "run", toy_corpus, rank, die)
    assert ends[rank] is None
    assert str(tmp_path / "run") in ends[1 - rank]
    assert train_run(SHORT, toy_corpus, Run(tmp_path / "run"), CPU, resume=True) == "finished"


def train_in(ranks, folder):
    """Start a new run in a folder; return the class of the error."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "connect_ranks", lambda device: contextlib.nullcontext(ranks))
        try:
            launch.train_recipe("ptb-mos", folder.parent / "toy", out=folder, device=CPU, max_epochs=0)
        except UserError as error:
            return type(error)


def test_no_rank_starts_in_the_folder_of_another_run(tmp_path, toy_corpus):
    """Or it would restore the checkpoint of that run, and call it damaged."""
    train_run(changed(max_epochs=1), toy_corpus, Run(tmp_path / "run"), CPU)
    (tmp_path / "ranks").mkdir()
    assert in_ranks(2, tmp_path / "ranks", train_in, tmp_path / "run") == [UserError, RankLostError]
