"""Training steps as CUDA graphs: the whole update of `step.py` in one launch, with one graph per window length.

A step launches hundreds of small kernels, and at the paper's batch sizes the host cannot launch them fast enough. A
graph is captured when a window length first occurs (`train.window_multiple` rounds lengths to a few values), and again
when averaging starts. Windows of other lengths, such as the last one of an epoch, run eagerly on the same tensors.

Dropout stays random, because every replay advances torch's generator. A capture restores the generator afterwards, so a
resumed run draws the same masks as an uninterrupted one.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from highrank.models.language_model import LanguageModel
from highrank.ops.cuda_graph import capture, warm_up
from highrank.recipes.recipe import TrainSpec
from highrank.training.nt_asgd import NTASGD
from highrank.training.step import Step

WARM_UP_STEPS = 2  # before a capture, so that libraries choose algorithms and allocate memory


class GraphedStep(Step):
    """A `Step` that replays a CUDA graph for every window whose length is a multiple of `train.window_multiple`."""

    def __init__(self, model: LanguageModel, optimizer: NTASGD, train: TrainSpec, device: torch.device) -> None:
        super().__init__(model, optimizer, train, device)
        self._graphs: dict[tuple[int, int], tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}
        self._pool: Any = None  # graphs never run at the same time, so they share memory

    def __call__(self, words: Tensor, targets: Tensor, lr: float) -> None:
        if len(words) % self.train.window_multiple:
            super().__call__(words, targets, lr)
            return
        # A graph holds the averages' tensors, so new averages need new graphs.
        key = (len(words), self.optimizer.generation)
        if key not in self._graphs:
            self._graphs[key] = self._capture(words, targets)
        graph, static_words, static_targets = self._graphs[key]
        static_words.copy_(words)
        static_targets.copy_(targets)
        self._lr.fill_(lr)
        graph.replay()

    def _capture(self, words: Tensor, targets: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor]:
        if any(generation != self.optimizer.generation for _, generation in self._graphs):
            self._graphs.clear()
            self._pool = None
        static_words = words.clone()
        static_targets = targets.clone()
        totals = self._totals.clone()
        changing = [*self.carried, *self.optimizer.state()]
        saved = [x.clone() for x in changing]
        generator = torch.cuda.get_rng_state(self.device)

        self._lr.zero_()  # the warm-up must not change the weights
        update = partial(self._update, static_words, static_targets)
        warm_up(update, self.device, WARM_UP_STEPS)
        self.optimizer.zero_grad()
        graph, _ = capture(update, self.device, self._pool)
        self._pool = graph.pool()

        # Restore what the warm-up changed.
        self._totals.copy_(totals)
        torch.cuda.set_rng_state(generator, self.device)
        for current, before in zip(changing, saved, strict=True):
            current.copy_(before)
        return graph, static_words, static_targets
