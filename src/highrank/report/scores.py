"""The perplexities of a run in each state: trained, finetuned, with a cache, with dynamic evaluation.

Among the runs of a recipe, the one with the best validation perplexity represents it; test perplexity chooses nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from highrank.report.records import RecordedRun, short_machine_name
from highrank.report.results import Origin
from highrank.runs.record import Adaptation
from highrank.schema import to_json

STATES = {
    "trained": "without finetuning",
    "finetuned": "finetuned",
    "cache": "+ cache",
    "dynamic": "+ dynamic evaluation",
}


@dataclass(frozen=True)
class Score:
    """The perplexities of one run in one state, and the training up to there."""

    run: RecordedRun
    valid: float
    test: float
    epochs: int
    seconds: float
    adaptation: Adaptation | None = None

    def origin(self) -> Origin:
        """Return where the score comes from."""
        pieces = len(self.run.pieces(self.epochs))
        changes = " ".join(f"{key}={value}" for key, value in self.run.changes.items())
        about = [f"with {changes}"] if changes else []
        if pieces > 1:
            about.append(f"in {pieces} pieces")
        if self.adaptation and self.adaptation.tuning:
            about.append("settings tuned on valid")
        adapted = None
        if self.adaptation:
            provenance = self.adaptation.provenance
            adapted = {
                "commit": provenance and provenance.commit,
                "machine": provenance and short_machine_name(provenance.machine),
                "seconds": self.adaptation.seconds,
                "settings": to_json(self.adaptation.settings),
            }
        return Origin(
            record=self.run.path,
            commit=self.run.commit(self.epochs),
            machine=self.run.machine(self.epochs),
            seed=self.run.record.seed,
            epochs=self.epochs,
            seconds=self.seconds,
            about=", ".join(about) or None,
            adapted=adapted,
        )


def final_score(run: RecordedRun) -> Score:
    """Return the score of a run's best weights, finetuned or not."""
    record = run.record
    return Score(run, record.valid_ppl, record.test_ppl, record.epochs, record.seconds)


def score(run: RecordedRun, state: str) -> Score | None:
    """Return the score of a run in one of STATES, if it has one."""
    record = run.record
    if state == "trained":
        first = record.stages[0]
        return Score(run, first.valid_ppl, first.test_ppl, first.epochs, first.seconds)
    if state == "finetuned":
        return final_score(run) if run.is_finetuned else None
    published, tuned = (
        (record.cache, record.cache_tuned) if state == "cache" else (record.dynamic, record.dynamic_tuned)
    )
    adaptations = [adaptation for adaptation in (published, tuned) if adaptation]
    if not adaptations:
        return None
    best = min(adaptations, key=lambda adaptation: adaptation.valid_ppl)
    return Score(run, best.valid_ppl, best.test_ppl, record.epochs, record.seconds, best)


def best_score(runs: Iterable[RecordedRun], state: str) -> Score | None:
    """Return the best score of several runs in one of STATES."""
    return best_on_validation(score(run, state) for run in runs)


def best_on_validation(scores: Iterable[Score | None]) -> Score | None:
    """Return the score with the lowest validation perplexity."""
    return min((one for one in scores if one), key=lambda one: one.valid, default=None)


def runs_of(recipe: str, runs: Iterable[RecordedRun]) -> list[RecordedRun]:
    """Return the runs of a recipe's own model on its own text."""
    return [run for run in runs if run.recipe == recipe and run.has_recipe_model]
