"""What training reports while it runs: metrics as dataclasses, and callbacks for displaying them."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class UpdateMetrics:
    """The loss of one update, measured every few seconds."""

    kind: Literal["train"] = "train"
    step: int
    epoch: int  # completed before this update
    nll: float  # nats per token


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

    def epoch_started(self, epoch: int, rows: int, row: int) -> None:
        """Called before the first update of an epoch, or at `row` of `rows` where a resumed run continues.

        Rows are those of a language model's columns, batches of dialogs, or updates with `train.updates_per_epoch`.
        """

    def update_done(self, row: int, tokens: int, loss: float) -> None:
        """Called after an update: rows used and mean loss of the epoch so far, tokens since `epoch_started`."""

    def epoch_done(self, metrics: EpochMetrics) -> None:
        """Called after the validation that ends an epoch."""

    def message(self, text: str) -> None:
        """Called with one line about an event, such as the start of a stage."""
