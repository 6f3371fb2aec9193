"""Training steps as CUDA graphs: the whole update of `step.py` in one launch, with one graph per shape of its tensors.

A step launches hundreds of small kernels, and at the paper's batch sizes the host cannot launch them fast enough. A
graph is captured when a shape first occurs. Tasks keep the number of shapes small: they round window lengths and bucket
dialogs. Rare shapes, such as the last window of an epoch, run eagerly on the same weights.

A graph holds the addresses of its tensors and the values of all settings, as they were at its capture. Weights, moments
and carried states only change in place. All graphs are discarded, and captured again when needed, in two cases:

- new averages, which are new tensors: `NTASGD.generation` has changed, and the next step notices;
- a new stage, whose settings may differ (noise, adversary): `Training.start_stage` calls `discard_graphs`.

Dropout stays random, because every replay advances torch's generator. A capture restores the generator afterwards, so a
resumed run draws the same masks as an uninterrupted one.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from highrank.ops.cuda_graph import capture, warm_up
from highrank.recipes.recipe import ScheduleSpec
from highrank.training.nt_asgd import NTASGD
from highrank.training.ranks import ALONE, Ranks
from highrank.training.step import Step
from highrank.training.task import Task

WARM_UP_STEPS = 2  # before a capture, so that libraries choose algorithms and allocate memory


class GraphedStep(Step):
    """A `Step` that replays a CUDA graph for every shape for which `Task.repeats` is true."""

    def __init__(
        self, task: Task, optimizer: NTASGD, train: ScheduleSpec, device: torch.device, ranks: Ranks = ALONE
    ) -> None:
        super().__init__(task, optimizer, train, device, ranks)
        self.discard_graphs()

    def discard_graphs(self) -> None:
        self._graphs: dict[tuple[torch.Size, ...], tuple[torch.cuda.CUDAGraph, list[Tensor]]] = {}
        self._pool: Any = None  # graphs never run at the same time, so they share memory
        self._generation = self.optimizer.generation

    def __call__(self, tensors: tuple[Tensor, ...], lr: float) -> None:
        if not self.task.repeats(*tensors):
            super().__call__(tensors, lr)
            return
        if self._generation != self.optimizer.generation:
            self.discard_graphs()
        shapes = tuple(x.shape for x in tensors)
        if shapes not in self._graphs:
            self._graphs[shapes] = self._capture(tensors)
        graph, static = self._graphs[shapes]
        for current, new in zip(static, tensors, strict=True):
            current.copy_(new)
        self._lr.fill_(lr)
        graph.replay()

    def _capture(self, tensors: tuple[Tensor, ...]) -> tuple[torch.cuda.CUDAGraph, list[Tensor]]:
        static = [x.clone() for x in tensors]
        totals = self._totals.clone()
        changing = [self.task.carried, *self.optimizer.state().values()]
        saved = [x.clone() for x in changing]
        generator = torch.cuda.get_rng_state(self.device)

        self._lr.zero_()  # the warm-up must not change the weights
        update = partial(self._update, *static)
        warm_up(update, self.device, WARM_UP_STEPS)
        self.optimizer.zero_grad()
        graph, _ = capture(update, self.device, self._pool)
        self._pool = graph.pool()

        # Restore what the warm-up changed.
        self._totals.copy_(totals)
        torch.cuda.set_rng_state(generator, self.device)
        for current, before in zip(changing, saved, strict=True):
            current.copy_(before)
        return graph, static
