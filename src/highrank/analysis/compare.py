"""Compare two models on the same text, step by step (appendix, "Qualitative Analysis"): where is one better, and why?

A gain is B's negative log-likelihood minus A's, in nats. Two passes: the losses of all steps, then the distributions at
the few steps that are shown (`reading.py`). Shapes: S steps; step s predicts ids[s + 1].
"""

from collections.abc import Set
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from highrank.analysis.context import Surroundings, phrase_ids, steps_with
from highrank.analysis.groups import (
    Group,
    decades,
    group_by_previous_word,
    group_losses,
    training_counts,
)
from highrank.analysis.paper_cases import CORPUS, SPLIT, PaperCase, find_cases
from highrank.analysis.prediction import Prediction, predict
from highrank.analysis.reading import Reading, hidden_at
from highrank.data.catalog import Level
from highrank.data.corpus import Corpus
from highrank.errors import UserError
from highrank.evaluation.score import perplexity
from highrank.heads import MoCHead, SoftmaxHead
from highrank.models.language_model import LanguageModel
from highrank.progress import OnProgress, OnStage, no_stages
from highrank.recipes.recipe import HeadName

# Steps that agree in this many tokens, the last of which is the reference, are shown once.
SAME_WORDS, SAME_CHARACTERS = 4, 12
PIECE_TOKENS = 2**22  # of the training text, read at once


@dataclass(frozen=True)
class Side:
    """One of the two models."""

    name: str
    head: HeadName
    n_components: int  # 1 for a softmax
    parameters: int
    nll: float  # nats per token over the whole split

    @property
    def perplexity(self) -> float:
        return perplexity(self.nll)


@dataclass(frozen=True)
class ComparedStep:
    """One predicted token, with what both models predicted."""

    position: int  # of the predicted token in the split, from 0
    context: list[str]
    reference: str  # the word that occurs
    continuation: list[str]  # the rest of its line
    gain: float  # b.nll - a.nll
    a: Prediction
    b: Prediction


@dataclass(frozen=True)
class OurCase:
    """One of the paper's example steps, with ours if the text contains it."""

    paper: PaperCase
    step: ComparedStep | None


@dataclass(frozen=True)
class Comparison:
    corpus: str
    level: Level
    split: str
    contains: str | None
    tokens: int  # predicted in the split
    a: Side
    b: Side
    overall: Group  # all steps, or those with `contains` in the context or as the reference
    a_better: int  # how many of these steps A predicts better
    a_ahead: list[ComparedStep]  # largest gain first
    b_ahead: list[ComparedStep]  # largest loss first
    by_frequency: list[Group]  # by count of the word in training
    by_pair: list[Group]  # by count of the word after its previous word in training
    by_previous: list[Group]  # by previous word, A's largest total gain first
    paper_cases: list[OurCase] | None  # None unless the text is the paper's


def compare(
    a: LanguageModel,
    b: LanguageModel,
    corpus: Corpus,
    readings: tuple[Reading, Reading],
    split: str = "test",
    *,
    names: tuple[str, str] = ("A", "B"),
    n: int = 5,
    top: int = 5,
    contains: str | None = None,
    on_stage: OnStage = no_stages,
) -> Comparison:
    """Find the `n` steps with the widest margin in each direction, what both models predict there, and gains by group.

    Of steps with the same reference after the same few tokens, only the one with the widest margin is shown. `top`
    words of each distribution are kept. `contains` restricts everything but the two perplexities to steps whose context
    or reference contains that phrase. `readings` are what `reading.read` returns for each model and the split.
    """
    ids = corpus.ids(split)
    for name, reading in zip(names, readings, strict=True):
        if not bool(reading.nll.isfinite().all()):
            raise UserError(f"{name} has losses that are not finite: its weights are damaged or its training diverged.")
    around = Surroundings(ids, corpus)
    chosen = _choose_steps(around, contains, split)
    nll_a, nll_b = (reading.nll.double().numpy() for reading in readings)
    gain = nll_b - nll_a

    order = chosen[np.argsort(-gain[chosen], kind="stable")]
    same = SAME_CHARACTERS if corpus.level == "char" else SAME_WORDS
    ahead = _first_distinct(order[gain[order] > 0], around.ids, same, n)
    behind = _first_distinct(order[gain[order] < 0][::-1], around.ids, same, n)
    cases = find_cases(around.ids, corpus.words) if (corpus.name, split) == (CORPUS, SPLIT) else None
    wanted = {*ahead, *behind, *(s for s in (cases or {}).values() if s is not None)}
    steps = _predict_steps(around, (a, b), readings, wanted, top, partial(on_stage, "predictions at the steps shown"))

    previous = around.ids[:-1][chosen]
    targets = around.ids[1:][chosen]
    per_step = nll_a[chosen], nll_b[chosen], around.lines[chosen]
    starts = range(0, len(corpus.splits["train"]), PIECE_TOKENS)
    pieces = (corpus.ids("train", start + PIECE_TOKENS, start=start).numpy() for start in starts)
    word_counts, pair_counts = training_counts(pieces, previous, targets, corpus.vocab_size)
    return Comparison(
        corpus=corpus.name,
        level=corpus.level,
        split=split,
        contains=contains,
        tokens=len(gain),
        a=_describe(names[0], a, readings[0]),
        b=_describe(names[1], b, readings[1]),
        overall=group_losses(["all"], np.zeros_like(chosen), *per_step)[0],
        a_better=int((gain[chosen] > 0).sum()),
        a_ahead=[steps[s] for s in ahead],
        b_ahead=[steps[s] for s in behind],
        by_frequency=group_losses(*decades(word_counts), *per_step),
        by_pair=group_losses(*decades(pair_counts), *per_step),
        by_previous=group_by_previous_word(corpus.words, previous, *per_step),
        paper_cases=None if cases is None else [OurCase(c, None if s is None else steps[s]) for c, s in cases.items()],
    )


def check_request(corpus: Corpus, split: str, contains: str | None) -> None:
    """Raise a UserError for a split or phrase that cannot be compared, before minutes are spent on reading."""
    if len(corpus.ids(split, 2)) < 2:
        raise UserError(f"the {split} split of {corpus.name} has no token to predict: choose another.")
    if contains is not None:
        phrase_ids(contains, corpus)


def _choose_steps(around: Surroundings, contains: str | None, split: str) -> np.ndarray:
    if contains is None:
        return np.arange(len(around.lines))
    chosen = steps_with(around.ids, phrase_ids(contains, around.corpus), around.starts)
    if len(chosen) == 0:
        raise UserError(f'"{contains}" does not occur in {split}: try another split or word.')
    return chosen


def _first_distinct(order: np.ndarray, ids: np.ndarray, same: int, n: int) -> list[int]:
    """Return the first n steps of `order`, without those whose `same` tokens up to the reference came before."""
    steps: dict[bytes, int] = {}
    for s in order.tolist():
        steps.setdefault(ids[max(0, s + 2 - same) : s + 2].tobytes(), s)
        if len(steps) == n:
            break
    return list(steps.values())


def _predict_steps(
    around: Surroundings,
    models: tuple[LanguageModel, LanguageModel],
    readings: tuple[Reading, Reading],
    wanted: Set[int],
    top: int,
    on_progress: OnProgress,
) -> dict[int, ComparedStep]:
    """Return both models' predictions at each wanted step."""
    words = around.corpus.words
    predictions: list[dict[int, Prediction]] = []
    for i, (model, reading) in enumerate(zip(models, readings, strict=True)):
        by_step: dict[int, Prediction] = {}
        for step, g in hidden_at(model, torch.from_numpy(around.ids), reading, wanted):
            by_step[step] = predict(model, g, int(around.ids[step + 1]), words, top)
            on_progress(i * len(wanted) + len(by_step), 2 * len(wanted))
        predictions.append(by_step)
    steps = {}
    for s in wanted:
        a, b = predictions[0][s], predictions[1][s]
        reference = words[around.ids[s + 1]]
        steps[s] = ComparedStep(s + 1, around.context(s), reference, around.continuation(s), b.nll - a.nll, a, b)
    return steps


def _describe(name: str, model: LanguageModel, reading: Reading) -> Side:
    head = model.head
    kind: HeadName = "softmax" if isinstance(head, SoftmaxHead) else "moc" if isinstance(head, MoCHead) else "mos"
    return Side(name, kind, head.n_components, model.n_parameters(), reading.nll.double().mean().item())
