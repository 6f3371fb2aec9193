"""A stream of ids as parallel columns, and windows of random length over them, as in the paper's code.

`rotate` implements PartialShuffle (Press 2019, arXiv:1903.04167), which the paper does not use.

Shapes: T tokens in a stream, B columns of R = T // B rows; a window is (length, B) words and the (length, B) words that
follow them.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from highrank.errors import UserError


class Rows(Protocol):
    """Rows of parallel columns: a (R, B) tensor, or `sentences.SentenceColumns`."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Tensor: ...


class Window(NamedTuple):
    start: int  # first row in the columns
    words: Tensor  # (length, B)
    targets: Tensor  # (length, B): the words one step later


def columns(ids: Tensor, batch_size: int) -> Tensor:
    """Cut a stream (T,) into B parallel columns (R, B); the last T % B tokens are dropped."""
    length = len(ids) // batch_size
    if length < 2:
        raise too_few(len(ids), batch_size)
    return ids[: length * batch_size].view(batch_size, length).t().contiguous()


def too_few(tokens: int, batch_size: int) -> UserError:
    """Return the error for a text that is too short for this batch size."""
    return UserError(
        f"{tokens:,} tokens are too few for a batch of {batch_size} columns: lower train.batch_size or use more text."
    )


def rotate(stream: Tensor, offsets: list[int]) -> Tensor:
    """Start column b of (R, B) at its row offsets[b], and append the rows before that at its end.

    PartialShuffle draws new offsets every pass. Windows then start at different words and combine different parts of
    the text, while only one of the R - 1 transitions in a column, from its last row to its first, is not in the text.
    """
    rows = torch.arange(len(stream), device=stream.device)[:, None] + torch.tensor(offsets, device=stream.device)
    return stream.gather(0, rows % len(stream))  # (R, B)


def window_length(rng: np.random.Generator, bptt: int, max_over_bptt: int, multiple: int = 1) -> int:
    """Draw from N(bptt, 5) with p = .95, else from N(bptt / 2, 5); at least 5, at most bptt + max_over_bptt.

    This length is then rounded to the nearest multiple, so that few CUDA graphs are needed. Rounding keeps the mean
    length, and with it the mean learning rate, which is scaled by the length.
    """
    mean = bptt if rng.random() < 0.95 else bptt / 2
    length = min(max(5, int(rng.normal(mean, 5))), bptt + max_over_bptt)
    return max(1, round(length / multiple)) * multiple


def random_windows(
    stream: Rows, rng: np.random.Generator, bptt: int, max_over_bptt: int, multiple: int = 1, start: int = 0
) -> Iterator[Window]:
    """Yield the windows of one pass from row `start` on.

    `rng` draws each length just before its window, so a run resumed between two windows draws the same lengths.

    # differs from the paper's code: the last window of a pass has the rows that are left, and its learning rate is
    # scaled by that length rather than by the one that was drawn.
    """
    while start < len(stream) - 1:
        length = min(window_length(rng, bptt, max_over_bptt, multiple), len(stream) - 1 - start)
        yield Window(start, stream[start : start + length], stream[start + 1 : start + length + 1])
        start += length
