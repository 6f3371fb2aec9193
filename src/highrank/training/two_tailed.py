"""SGD with two tail averages of adaptive length (Melis 2022, "Two-Tailed Averaging", arXiv:2209.12581).

NT-ASGD averages from one moment on and never forgets; a rule with a parameter has to find that moment. Here two
averages run from the first step on, a long one over the last L updates and a short one over the last S <= L:

    after every update                      long += (theta - long) / L,   short += (theta - short) / S
    after every epoch, if short is better   long <- short, L <- S, and short begins anew, S <- 0

The long average stands for the run. Where averages get better with their length up to some best one and worse beyond
it, L stays below about twice that length, and comes near it at least once between any two switches.

This is that paper's algorithm 1 with the second of the two extensions in its algorithm 2: while the weights themselves
are no worse than the long average, as they are at the very beginning, they stand for the run, and averages that are no
longer than one epoch begin anew.

    # differs from that paper: its first extension, new averages when the old ones have not improved "for a few
    # evaluations", is left out. Here a stage ends then (train.patience), and the next begins with new averages.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from highrank.training.nt_asgd import NTASGD


class TwoTailed(NTASGD):
    """`averages` and `n_averaged` are the long average and L; `short` and `n_short` the short one and S."""

    def __init__(self, parameters: Iterable[nn.Parameter], weight_decay: float = 0.0) -> None:
        super().__init__(parameters, weight_decay)
        self.n_short = torch.zeros_like(self.n_averaged)
        self.start_averaging()

    def start_averaging(self) -> None:
        super().start_averaging()
        self.short: list[Tensor] = [p.detach().clone() for p in self.parameters]
        self.n_short.zero_()
        self.won = False  # at the last evaluation: the long average was better than the weights themselves
        self.fresh = True  # S was 0 after it

    def load_short(self, n_averaged: int, won: bool, fresh: bool) -> None:
        """Take the parameters as they are for the short average."""
        self.short = [p.detach().clone() for p in self.parameters]
        self.n_short.fill_(n_averaged)
        self.won, self.fresh = won, fresh

    def evaluate(self, loss: Callable[[], float]) -> float:
        """Three losses, what follows from them for the averages, and the loss of what then stands for the run."""
        plain = loss()
        with self._swapped(self.averages):
            long = loss()
        with self._swapped(self.short):
            short = loss()
        one_epoch = self.fresh  # is how long the short average is
        self.fresh = short <= long
        if self.fresh:
            self._switch()
            long = short
        self.won = long < plain or self.n_averaged.item() <= 1  # the average of one is no average
        if self.won:
            return long
        if one_epoch and self.fresh:
            self.n_averaged.zero_()
        return plain

    def about(self) -> dict[str, Any]:
        """How many updates are in the weights that stand for the run, after `evaluate`."""
        return {"averaged": self.won, "average_length": int(self.n_averaged.item()) if self.won else 1}

    def state(self) -> list[Tensor]:
        return [*super().state(), self.n_short, *self.short]

    @torch.no_grad()
    def _switch(self) -> None:
        # In place: CUDA graphs hold on to these tensors. What is in `short` is forgotten by the next update, as S = 0.
        assert self.averages is not None
        for mine, other in zip(self.averages, self.short, strict=True):
            mine.copy_(other)
        self.n_averaged.copy_(self.n_short)
        self.n_short.zero_()

    def _second(self, apply: Tensor) -> tuple[list[Tensor], Tensor]:
        return self.short, self._share(self.n_short, apply)

    def _standing(self) -> list[Tensor] | None:
        return self.averages if self.won else None
