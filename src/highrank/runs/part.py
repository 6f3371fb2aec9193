"""A part of a record as it grows: settings and how they were found, then validation, then test.

Each takes minutes and more, and whoever is cut off keeps what there is: a part without a test perplexity. The next call
that asks for it goes on with it, if the same code on the same kind of machine would make it again, and leaves alone
what is whole already. Who asks for whole parts only has them made anew.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from highrank.evaluation.perplexity import Evaluation, evaluate
from highrank.evaluation.tune import Settings
from highrank.models.language_model import LanguageModel
from highrank.progress import OnProgress
from highrank.runs.provenance import provenance

SPLITS = ("valid", "test")
SCORES = ("valid_ppl", "test_ppl")
Watch = Callable[[str], OnProgress]  # what is about to start -> whom to tell (done, total)
Adapt = Callable[[Tensor, Settings, OnProgress], Evaluation]
Part = dict[str, Any]


def unwatched(what: str) -> OnProgress:
    return lambda done, total: None


def perplexities(
    model: LanguageModel, splits: dict[str, Tensor], batch_size: int = 1, watch: Watch = unwatched
) -> dict[str, float]:
    """What a model comes to without adapting: the scores that every part has, too."""
    return {
        score: evaluate(model, splits[split], batch_size, on_progress=watch(split)).perplexity
        for split, score in zip(SPLITS, SCORES, strict=True)
    }


@dataclass(frozen=True)
class Parts:
    known: dict[str, Part]  # of the record so far, by name
    splits: dict[str, Tensor]
    device: torch.device
    watch: Watch
    asked: Sequence[str]  # the names of the parts to be made

    def has(self, name: str, settings: Settings) -> bool:
        """Whether all of a part with these settings is known."""
        part = self.known.get(name, {})
        return is_whole(part) and part.get("settings") == asdict(settings)

    def begun(self, name: str) -> Part:
        """What there is of a part to go on with: of one that was cut off, or of a whole one while another is not."""
        part, here = self.known.get(name, {}), provenance(self.device)
        same = {**part.get("provenance", {}), "started": None} == {**here, "started": None}
        anew = all(is_whole(self.known.get(other, {})) for other in self.asked)
        return part if same and not anew else {}

    def grow(
        self, name: str, adapt: Adapt[Settings], settings: Settings, tuning: dict[str, Any] | None = None
    ) -> Iterator[tuple[str, Part]]:
        """The name and the part whenever it has grown. A whole one that is known is replaced by a whole one only."""
        before, replaces = self.begun(name), is_whole(self.known.get(name, {}))
        if before.get("settings") != asdict(settings) or before.get("tuning") != tuning:
            before = {}
        scores = {key: before[key] for key in SCORES if key in before}
        seconds, where = before.get("seconds", 0.0), before.get("provenance") or provenance(self.device)
        found = {} if tuning is None else {"tuning": tuning}

        def part() -> Part:
            return {"settings": asdict(settings), **scores, "seconds": seconds, "provenance": where, **found}

        if found and not (before or replaces):
            yield name, part()
        for split, score in zip(SPLITS, SCORES, strict=True):
            if score in scores:
                continue
            began = time.perf_counter()
            result = adapt(self.splits[split], settings, self.watch(f"{split}, {name.replace('_', ', ')}"))
            scores[score] = result.perplexity
            seconds += time.perf_counter() - began
            if not replaces or is_whole(scores):
                yield name, part()


def is_whole(part: Part) -> bool:
    return all(score in part for score in SCORES)
