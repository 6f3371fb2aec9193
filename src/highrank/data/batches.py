"""Streams of ids cut into columns, and windows of random length over them, as in the paper's code.

`rotate` is an option that the paper does not have: PartialShuffle (Press 2019, arXiv:1903.04167).

Shapes: T tokens in a stream, B columns; a window is (length, B) words and the (length, B) words that follow them.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from highrank.errors import UserError


class Window(NamedTuple):
    start: int  # its first row in the columns
    words: Tensor  # (length, B)
    targets: Tensor  # (length, B): the words one step later


def columns(ids: Tensor, batch_size: int) -> Tensor:
    """(T,) -> (T // B, B): the stream in B parallel columns; what is left over at its end is dropped."""
    length = len(ids) // batch_size
    if length < 2:
        raise UserError(
            f"{len(ids):,} tokens are too few for a batch of {batch_size} columns: "
            "lower train.batch_size or use more text."
        )
    return ids[: length * batch_size].view(batch_size, length).t().contiguous()


def rotate(stream: Tensor, offsets: list[int]) -> Tensor:
    """(T, B) -> (T, B): column b starts at its row offsets[b], and its first rows follow its last.

    With new random offsets every epoch this is PartialShuffle: every window brings other stretches of the text
    together, while only one of a column's T - 1 transitions, from its last row to its first, is not the text's.
    """
    rows = torch.arange(len(stream), device=stream.device)[:, None] + torch.tensor(offsets, device=stream.device)
    return stream.gather(0, rows % len(stream))  # (T, B)


def window_length(rng: np.random.Generator, bptt: int, max_over_bptt: int, multiple: int = 1) -> int:
    """bptt with p = .95, else half of it; jittered by N(0, 5); at least 5; at most bptt + max_over_bptt.

    The result is rounded to the nearest multiple, which keeps the mean and the learning rate scaled by it: a few
    distinct lengths are what CUDA graphs want.
    """
    mean = bptt if rng.random() < 0.95 else bptt / 2
    length = min(max(5, int(rng.normal(mean, 5))), bptt + max_over_bptt)
    return max(1, round(length / multiple)) * multiple


def random_windows(
    stream: Tensor, rng: np.random.Generator, bptt: int, max_over_bptt: int, multiple: int = 1, start: int = 0
) -> Iterator[Window]:
    """The windows of one epoch from row `start` on. The caller's `rng` is advanced once a window, just before it.

    # differs from the paper's code: the last window of an epoch is as long as what is left, and its learning rate is
    # scaled by that length rather than by the one that was drawn.
    """
    while start < len(stream) - 1:
        length = min(window_length(rng, bptt, max_over_bptt, multiple), len(stream) - 1 - start)
        yield Window(start, stream[start : start + length], stream[start + 1 : start + length + 1])
        start += length
