"""Parallel columns over the sentences of an indexed text, in a new random order in every pass.

The order is computed from the seed and the number of the pass, never stored. The text is cut into groups of
consecutive sentences, about two million tokens each; a pass visits the groups in random order, and the sentences of
each group in random order. So the disk is read in pieces of 8 MB, and memory holds one or two groups, whatever the size
of the text. A row number is all that is needed to continue in the middle of a pass.

Each group is laid out as B columns, as `batches.columns` does with a whole text: its last T % B tokens are dropped, and
columns begin and end within sentences. So a column has one broken sentence per group: every 35,000 rows if B = 60.
"""

import numpy as np
import torch
from torch import Tensor

from highrank.data.batches import too_few
from highrank.data.indexed import IndexedText

GROUP_TOKENS = 2**21


class SentenceColumns:
    """A sequence of rows: columns[a:b] is (b - a, B), or those of the B columns that `part` selects."""

    def __init__(
        self,
        text: IndexedText,
        batch_size: int,
        seed: int,
        device: torch.device | str = "cpu",
        part: slice = slice(None),
        group_tokens: int = GROUP_TOKENS,
    ) -> None:
        self.text = text
        self.batch_size = batch_size
        self.seed = seed
        self.device = device
        self.part = part
        n_groups = max(1, min(round(text.tokens / group_tokens), text.sentences))
        self.bounds = text.sentences * np.arange(n_groups + 1) // n_groups  # first sentence of each group, and the end
        starts = [text.starts(first, first + 1)[0] for first in self.bounds[:-1]]
        self.starts = np.array([*starts, text.tokens])  # first token of each group, and the end
        self.group_rows = np.diff(self.starts) // batch_size
        if self.group_rows.min() < 0:
            raise text.damaged(text.idx_file)
        if self.group_rows.sum() < 2:
            raise too_few(text.tokens, batch_size)
        self.start_pass(0)

    def start_pass(self, number: int) -> None:
        """Choose the order of this pass, from 0."""
        self.number = number
        self.order = np.random.default_rng([self.seed, number]).permutation(len(self.group_rows))
        self.ends = np.cumsum(self.group_rows[self.order])  # row at which each group of the order ends
        self._loaded: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, rows: slice) -> Tensor:
        parts = []
        start = rows.start
        while start < rows.stop:
            place = int(np.searchsorted(self.ends, start, side="right"))
            end = int(self.ends[place])
            group = self._group(place)
            parts.append(group[len(group) - (end - start) :][: rows.stop - start])
            start = end
        return torch.cat(parts)

    def _group(self, place: int) -> Tensor:
        """Return the rows of a group; keep them for the next window, and those of the group before."""
        if place not in self._loaded:
            self._loaded = {k: rows for k, rows in self._loaded.items() if k == place - 1}
            self._loaded[place] = self._load(int(self.order[place])).to(self.device)
        return self._loaded[place]

    def _load(self, group: int) -> Tensor:
        """Read a group and return its permuted sentences as columns, (rows, B)."""
        starts = self.text.starts(self.bounds[group], self.bounds[group + 1])
        if starts[-1] != self.starts[group + 1]:
            raise self.text.damaged(self.text.idx_file)
        order = np.random.default_rng([self.seed, self.number, group]).permutation(len(starts) - 1)
        sizes = np.diff(starts)[order]
        shift = starts[:-1][order] - (np.cumsum(sizes) - sizes)  # from positions in the permuted text to those on disk
        position = np.arange(sizes.sum()) + np.repeat(shift, sizes)
        rows = self.group_rows[group]
        wanted = position[: rows * self.batch_size].reshape(self.batch_size, rows)[self.part]
        ids = self.text.ids(starts[0], starts[-1])[wanted - starts[0]]
        return torch.from_numpy(ids.T.astype(np.int64))
