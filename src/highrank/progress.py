"""Progress callbacks: how long computations report what they are doing, without knowing who displays it.

A function with one stage takes an `OnProgress`; a function with several takes an `OnStage` and hands
`functools.partial(on_stage, "name of the stage")` to the functions it calls.
"""

from collections.abc import Callable

OnProgress = Callable[[int, int | None], object]  # units done, units in total (None: not known in advance)
OnStage = Callable[[str, int, int | None], object]  # the same, preceded by the name of the stage


def no_progress(done: int, total: int | None) -> None:
    """Ignore the progress of a single stage."""


def no_stages(stage: str, done: int, total: int | None) -> None:
    """Ignore the progress of every stage."""
