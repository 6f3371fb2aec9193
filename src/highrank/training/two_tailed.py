"""SGD with two tail averages of adaptive length (Melis 2022, "Two-Tailed Averaging", arXiv:2209.12581).

NT-ASGD never forgets an iterate once it averages, so its result depends on when it starts, which a rule with a
hyper-parameter chooses. Two-tailed averaging keeps two averages from the first step: a long one over the last L
updates, and a short one over the last S <= L.

    after every update                        long += (theta - long) / L,   short += (theta - short) / S
    after every epoch, if short is no worse   long <- short, L <- S, and short restarts with S <- 0

The long average represents the run. Suppose averages improve with their length up to an optimum and get worse beyond
it: then L stays below about twice the optimum, and comes close to it at least once between any two switches.

This is algorithm 1 of the paper with the second of the two extensions in its algorithm 2: while the weights themselves
are no worse than the long average, as in the first epochs, they represent the run instead, and if the short average
covers one epoch only, the long one restarts too.

    # differs from the paper: its first extension, new averages after the old ones have not improved "for a few
    # evaluations", is left out. Here a stage ends then (train.patience), and the next one starts new averages.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from highrank.training.nt_asgd import NTASGD


class TwoTailed(NTASGD):
    """`averages` and `n_averaged` hold the long average and L; `short` and `n_short` hold the short one and S.

    `long_is_best`: at the last evaluation, the long average was better than the weights themselves. `short_is_new`: the
    short average started at the last evaluation, or with the stage. Both are CPU tensors, which `state` includes.
    """

    def __init__(self, parameters: dict[str, nn.Parameter], weight_decay: float = 0.0, *, adam: bool = False) -> None:
        super().__init__(parameters, weight_decay, adam=adam)
        self.n_short = torch.zeros_like(self.n_averaged)
        self.long_is_best = torch.tensor(False)
        self.short_is_new = torch.tensor(True)
        self.start_averaging()

    def start_averaging(self) -> None:
        """Start both averages at the current weights."""
        super().start_averaging()
        self.short: list[Tensor] = [p.detach().clone() for p in self.parameters]
        self.n_short.zero_()
        self.long_is_best.fill_(False)
        self.short_is_new.fill_(True)

    def evaluate(self, loss: Callable[[], float]) -> float:
        """Compare the weights and both averages, switch if the short one is no worse, and return the best loss.

        The returned loss belongs to the weights that represent the run from now on.
        """
        plain = loss()
        with self._swapped(self.averages):
            long = loss()
        with self._swapped(self.short):
            short = loss()
        short_is_one_epoch = self.short_is_new.item()
        switch = short <= long
        if switch:
            self._switch()
            long = short
        self.short_is_new.fill_(switch)
        # An average of one update equals the weights. Count it as better: else, where an epoch is a single update, it
        # would restart after every epoch.
        self.long_is_best.fill_(long < plain or self.n_averaged.item() <= 1)
        if self.uses_averages:
            return long
        if short_is_one_epoch and switch:
            self.n_averaged.zero_()  # the next update overwrites the average
        return plain

    @property
    def uses_averages(self) -> bool:
        return bool(self.long_is_best)

    @property
    def average_length(self) -> int:
        return int(self.n_averaged.item()) if self.uses_averages else 1

    def state(self) -> dict[str, Tensor]:
        own = {"n_short": self.n_short, "long_is_best": self.long_is_best, "short_is_new": self.short_is_new}
        return super().state() | own | self._by_name("short", self.short)

    @torch.no_grad()
    def _switch(self) -> None:
        """Replace the long average by the short one. In place, because CUDA graphs hold these tensors."""
        assert self.averages is not None
        for long, short in zip(self.averages, self.short, strict=True):
            long.copy_(short)
        self.n_averaged.copy_(self.n_short)
        self.n_short.zero_()  # the next update overwrites the short average

    def _second_average(self, apply: Tensor) -> tuple[list[Tensor], Tensor]:
        return self.short, self._count(self.n_short, apply)
