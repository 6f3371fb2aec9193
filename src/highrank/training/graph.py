"""Training steps as CUDA graphs: the whole update of `step.py` replayed with one launch, keyed by window length.

A step launches hundreds of small kernels, and at the paper's batch sizes the host cannot keep up. A graph is captured
the first time a window length comes (recipes round lengths to a few, `train.window_multiple`) and again once averaging
has started. Dropout stays random: torch's generator advances at every replay. A capture leaves it where it was, so that
a resumed run goes on with the masks of one that was not cut. Windows of other lengths (the last of an epoch) run
eagerly on the same tensors.
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

WARM_UP_STEPS = 2  # before a capture: libraries choose algorithms and allocate


class GraphedStep(Step):
    def __init__(self, model: LanguageModel, optimizer: NTASGD, train: TrainSpec, device: torch.device) -> None:
        super().__init__(model, optimizer, train, device)
        self._graphs: dict[tuple[int, int], tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}
        self._pool: Any = None  # the graphs never run at once, so they share their memory

    def __call__(self, words: Tensor, targets: Tensor, lr: float) -> None:
        if len(words) % self.train.window_multiple:
            super().__call__(words, targets, lr)
            return
        # The averages' tensors are part of what is captured: new ones need new graphs.
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
        static_words, static_targets = words.clone(), targets.clone()
        hidden = [[(h.clone(), c.clone()) for h, c in state] for state in self.hidden]
        totals, averages = self._totals.clone(), [x.clone() for x in self.optimizer.state()]
        generator = torch.cuda.get_rng_state(self.device)

        self._lr.zero_()  # the rehearsal changes no weight
        update = partial(self._update, static_words, static_targets)
        warm_up(update, self.device, WARM_UP_STEPS)
        self.optimizer.zero_grad()
        graph, _ = capture(update, self.device, self._pool)
        self._pool = graph.pool()

        self.load_hidden(hidden)  # ... and what it did change is put back
        self._totals.copy_(totals)
        torch.cuda.set_rng_state(generator, self.device)
        for mine, kept in zip(self.optimizer.state(), averages, strict=True):
            mine.copy_(kept)
        return graph, static_words, static_targets
