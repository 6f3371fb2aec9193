"""Training callbacks, and the dataclasses that they receive: the setup, and the metrics of updates and epochs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from highrank.data.corpus import Corpus
from highrank.data.dialog import DialogCorpus
from highrank.recipes import AnyRecipe
from highrank.training.ranks import Ranks


@dataclass(frozen=True)
class TrainingSetup:
    """The recipe, the corpus, the run folder and the devices of a training run."""

    recipe: AnyRecipe
    corpus: Corpus | DialogCorpus
    folder: Path  # of the run
    device: torch.device
    ranks: Ranks


@dataclass(frozen=True, kw_only=True)
class UpdateMetrics:
    """The loss of an update, and the progress within its epoch. Losses are in nats per token.

    `row` and `epoch_nll` count from the start of the epoch, `tokens` from where this process started or resumed it.
    """

    kind: Literal["train"] = "train"
    step: int
    epoch: int  # completed before this update
    row: int  # as in `Callbacks.epoch_started`
    tokens: int
    nll: float  # of this update
    epoch_nll: float  # mean over the tokens of the epoch


@dataclass(frozen=True, kw_only=True)
class EpochMetrics:
    """The result of one epoch. Losses are in nats per token."""

    kind: Literal["epoch"] = "epoch"
    epoch: int
    stage: str  # "train", "finetune-1", "finetune-2", ...
    averaged: bool  # whether validation used averaged weights
    average_length: int | None = None  # updates in that average, with two-tailed averaging
    step: int
    train_nll: float
    train_ppl: float
    valid_nll: float
    valid_ppl: float
    best_valid_ppl: float
    best_epoch: int
    skipped: int
    tokens_per_second: float
    seconds: float  # of the whole run


class Callbacks:
    """Training callbacks. Every method is a no-op by default."""

    def training_started(self, setup: TrainingSetup) -> None:
        """Called once the recipe, the corpus and the run folder are chosen, before the model is built."""

    def training_ended(self) -> None:
        """Called when the run has ended or paused, or failed with an error. An evaluation may follow."""

    def epoch_started(self, epoch: int, rows: int, row: int) -> None:
        """Called before the first update of an epoch, or at `row` of `rows` where a resumed run continues.

        Rows are those of a language model's columns, batches of dialogs, or updates with `train.updates_per_epoch`.
        """

    def update_done(self, metrics: UpdateMetrics) -> None:
        """Called after an update: after every one on a CPU, and whenever the loss is read on a GPU."""

    def epoch_done(self, metrics: EpochMetrics) -> None:
        """Called after the validation that ends an epoch."""

    def message(self, text: str) -> None:
        """Called with one line about an event, such as the start of a stage."""


@dataclass
class CallbackList(Callbacks):
    """Several callbacks, called one after the other."""

    callbacks: Sequence[Callbacks]

    def training_started(self, setup: TrainingSetup) -> None:
        for callbacks in self.callbacks:
            callbacks.training_started(setup)

    def training_ended(self) -> None:
        for callbacks in self.callbacks:
            callbacks.training_ended()

    def epoch_started(self, epoch: int, rows: int, row: int) -> None:
        for callbacks in self.callbacks:
            callbacks.epoch_started(epoch, rows, row)

    def update_done(self, metrics: UpdateMetrics) -> None:
        for callbacks in self.callbacks:
            callbacks.update_done(metrics)

    def epoch_done(self, metrics: EpochMetrics) -> None:
        for callbacks in self.callbacks:
            callbacks.epoch_done(metrics)

    def message(self, text: str) -> None:
        for callbacks in self.callbacks:
            callbacks.message(text)
