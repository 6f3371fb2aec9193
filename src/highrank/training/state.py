"""Where training stands, apart from tensors: what checkpoint.json and an export's index.json hold of it."""

from dataclasses import dataclass, field
from typing import Any

from highrank.shape import AMOUNT, NUMBER, WHOLE, YES_OR_NO, Leaf, wrong


@dataclass
class Progress:
    stage: int = 0  # 0: training; 1, 2, ...: finetuning
    stage_epoch: int = 0  # finished epochs of the stage
    epoch: int = 0  # finished epochs in all
    row: int = 0  # rows of the columns that this epoch has used
    offsets: list[int] = field(default_factory=list)  # where this epoch's columns start (train.partial_shuffle)
    step: int = 0  # updates in all
    loss_sum: float = 0.0  # of this epoch, in nats
    loss_tokens: int = 0
    skipped: int = 0  # updates left out because loss or gradient was not finite
    skipped_in_a_row: int = 0
    history: list[float] = field(default_factory=list)  # validation losses for the non-monotone rule in force
    best_valid: float | None = None  # in nats
    best_epoch: int = 0
    seconds: float = 0.0  # of training and validation so far
    finished: bool = False
    metrics_bytes: int = 0  # how much of metrics.jsonl belongs to this checkpoint
    stages: list[dict[str, Any]] = field(default_factory=list)  # what the stages that are over came to
    pieces: list[dict[str, Any]] = field(default_factory=list)  # one a start: where, when, from which epoch on


MAYBE: Leaf = "a number or null", lambda value: value is None or NUMBER[1](value)
SHAPES = {
    **dict.fromkeys(("stage", "stage_epoch", "epoch", "row", "step", "loss_tokens"), WHOLE),
    **dict.fromkeys(("skipped", "skipped_in_a_row", "best_epoch", "metrics_bytes"), WHOLE),
    "offsets": [WHOLE],
    "loss_sum": NUMBER,
    "history": [NUMBER],
    "best_valid": MAYBE,
    "seconds": AMOUNT,
    "finished": YES_OR_NO,
    "stages": [{"stage": WHOLE, "epochs": WHOLE, "seconds": AMOUNT}],
    "pieces": [{"epoch": WHOLE}],
}


def progress_of(told: Any) -> Progress:
    """What JSON tells of it, or an error that says what is wrong; earlier versions told less."""
    if said := wrong(told, {key: shape for key, shape in SHAPES.items() if key in told}, "progress"):
        raise ValueError(said)
    if unknown := sorted(told.keys() - SHAPES.keys()):
        raise ValueError(f"its progress holds {unknown[0]}, which this version of highrank does not know")
    return Progress(**told)


def stage_result(progress: Progress, results: dict[str, float]) -> dict[str, Any]:
    """A stage of a record: the best weights when it ended (or so far), and what they had cost in all."""
    return {
        "stage": progress.stage,
        "epochs": progress.epoch,
        "best_epoch": progress.best_epoch,
        "seconds": progress.seconds,
        **results,
    }
