import numpy as np
import pytest
import torch

from highrank.data.batches import columns, random_windows, rotate, window_length
from highrank.errors import UserError


def test_columns_run_in_parallel_and_drop_the_remainder():
    assert columns(torch.arange(10), 3).tolist() == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


def test_too_few_tokens_for_a_batch_name_the_key():
    with pytest.raises(UserError, match=r"train\.batch_size"):
        columns(torch.arange(10), 8)


def test_rotate_starts_each_column_at_its_offset():
    stream = columns(torch.arange(12), 3)
    assert rotate(stream, [0, 1, 3]).t().tolist() == [[0, 1, 2, 3], [5, 6, 7, 4], [11, 8, 9, 10]]
    assert rotate(stream, [0, 0, 0]).equal(stream)


def test_windows_cover_the_stream_once():
    stream = columns(torch.arange(1000), 4)
    windows = list(random_windows(stream, np.random.default_rng(0), bptt=20, max_over_bptt=10))
    assert torch.equal(torch.cat([w.targets for w in windows]), stream[1:])
    assert torch.equal(torch.cat([w.words for w in windows]), stream[:-1])
    assert len({len(w.words) for w in windows}) > 3
    assert all(torch.equal(w.words, stream[w.start : w.start + len(w.words)]) for w in windows)


def test_a_last_window_may_be_one_row_long():
    stream = columns(torch.arange(4), 2)
    (window,) = random_windows(stream, np.random.default_rng(0), bptt=20, max_over_bptt=10)
    assert (window.words.tolist(), window.targets.tolist()) == ([[0, 2]], [[1, 3]])


def test_windows_start_at_the_given_row():
    stream = columns(torch.arange(1000), 4)
    windows = list(random_windows(stream, np.random.default_rng(0), bptt=20, max_over_bptt=10, start=100))
    assert windows[0].start == 100
    assert torch.equal(torch.cat([w.words for w in windows]), stream[100:-1])


def test_window_lengths_follow_the_papers_distribution():
    rng = np.random.default_rng(0)
    lengths = np.array([window_length(rng, 70, 40) for _ in range(20_000)])
    assert 0.04 < (lengths < 50).mean() < 0.06  # half-length windows, p = .05
    assert abs(lengths[lengths > 50].mean() - 69.5) < 0.2  # int() truncates N(70, 5), by half a token on average
    assert abs(lengths[lengths > 50].std() - 5) < 0.1
    assert lengths.min() >= 5
    assert max(window_length(rng, 10, 2) for _ in range(500)) == 12


def test_windows_have_at_least_five_rows():
    rng = np.random.default_rng(0)
    lengths = [window_length(rng, bptt=8, max_over_bptt=20) for _ in range(2000)]
    assert min(lengths) == 5
    assert lengths.count(5) > 400  # short draws are raised to 5, not drawn again


@pytest.mark.parametrize("multiple", [4, 5, 16, 200])
def test_lengths_are_rounded_to_the_nearest_multiple(multiple):
    seeds = range(300)
    exact = np.array([window_length(np.random.default_rng(s), 70, 20) for s in seeds])
    rounded = np.array([window_length(np.random.default_rng(s), 70, 20, multiple) for s in seeds])
    assert (rounded % multiple == 0).all()
    assert (rounded > 0).all()
    assert (np.abs(rounded - exact)[rounded > multiple] <= multiple / 2).all()
    if multiple < 10:
        assert abs(rounded.mean() - exact.mean()) < 0.3
