"""Where rows of log-probabilities come from: a model reads a text window by window.

Shapes: words (t,) ids; rows (t, V), row i the log-probabilities of the word after words[i].
"""

from collections.abc import Callable, Iterator

from torch import Tensor

from highrank.models.language_model import LanguageModel

LogProb = Callable[[Tensor], Tensor]  # (t,) ids -> (t, V) log-probabilities of each next word


def windows(ids: Tensor, window: int) -> Iterator[Tensor]:
    """`ids` in consecutive runs of `window` words; the last may be shorter."""
    yield from ids.split(window)


def carrying_state(model: LanguageModel) -> LogProb:
    """`model` as a function of ids that goes on from where the window before ended."""
    state = model.initial_state(1)

    def log_prob(words: Tensor) -> Tensor:
        nonlocal state
        log_p, state = model.log_prob(words[:, None], state)
        return log_p[:, 0]

    return log_prob
