"""Who is told how training goes: nobody, unless a subclass listens. `training.progress` draws bars."""

from typing import Any


class Listener:
    def epoch_started(self, epoch: int, rows: int, row: int) -> None: ...
    def window_done(self, row: int, tokens: int, loss: float) -> None: ...  # tokens of this epoch so far
    def epoch_done(self, record: dict[str, Any]) -> None: ...
    def message(self, text: str) -> None: ...
