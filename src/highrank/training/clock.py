"""When the loop saves, writes a line or pauses."""

import math
import time

from highrank.training.state import Progress

METRICS_EVERY_SECONDS = 10.0


class Clock:
    """Wall time: of the run in all, since this start, and since the last save or metrics line."""

    def __init__(self, checkpoint_every: float, time_budget: float | None = None) -> None:
        self._start = self._counted = self._wrote = self._saved = time.perf_counter()
        self._checkpoint_every, self._time_budget = checkpoint_every, time_budget

    def since_start(self) -> float:
        return time.perf_counter() - self._start

    def time_is_up(self) -> bool:
        return self._time_budget is not None and self.since_start() >= self._time_budget

    def count(self, progress: Progress) -> None:
        now = time.perf_counter()
        progress.seconds += now - self._counted
        self._counted = now

    def save_due(self, at_most: float = math.inf) -> bool:
        return time.perf_counter() - self._saved >= min(at_most, self._checkpoint_every)

    def saved(self) -> None:
        self._saved = time.perf_counter()

    def metrics_due(self) -> bool:
        if time.perf_counter() - self._wrote < METRICS_EVERY_SECONDS:
            return False
        self._wrote = time.perf_counter()
        return True
