"""Two models on the same text, step by step (appendix, "Qualitative Analysis"): where is one better, and why?

    from highrank.analysis.compare import compare_runs
    comparison = compare_runs("runs/ptb-mos", "runs/ptb-moc", n=10)
    comparison.a_ahead[0].a.top, comparison.a_ahead[0].b.top, comparison.by_frequency

A gain is B's negative log loss less A's, in nats. Two passes: the losses of all steps, then the distributions of the
few steps that are shown (`reading.py`). Shapes: S steps; step s predicts ids[s + 1].
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from highrank.analysis.bands import Group, by_previous_word, decades, grouped, pair_counts, word_counts
from highrank.analysis.context import Surroundings, phrase_ids, steps_with
from highrank.analysis.paper_cases import CORPUS, SPLIT, PaperCase, find_cases
from highrank.analysis.prediction import Prediction, predict
from highrank.analysis.reading import Reading, hidden_at, read
from highrank.data.catalog import Level
from highrank.data.corpus import Corpus
from highrank.errors import UserError
from highrank.evaluation.perplexity import perplexity
from highrank.heads import MoCHead, MoSHead
from highrank.models.language_model import LanguageModel
from highrank.progress import OnStage
from highrank.recipes.recipe import HeadName
from highrank.runs.cache import cached_reading
from highrank.runs.folder import Run, load, run_corpus


@dataclass(frozen=True)
class Side:
    name: str
    head: HeadName
    n_components: int  # 1 for a softmax
    parameters: int
    nll: float  # over the whole split, in nats a token

    @property
    def perplexity(self) -> float:
        return perplexity(self.nll)


@dataclass(frozen=True)
class Step:
    position: int  # of the predicted token in the split, from 0
    context: list[str]
    reference: str  # the word that came
    continuation: list[str]  # the rest of its line
    gain: float  # b.nll - a.nll
    a: Prediction
    b: Prediction


@dataclass(frozen=True)
class Case:
    paper: PaperCase
    step: Step | None  # None: the text has no such step


@dataclass(frozen=True)
class Comparison:
    corpus: str
    level: Level
    split: str
    contains: str | None
    columns: int  # the stream was read in so many; each starts from a zero state
    tokens: int  # predicted in the split
    a: Side
    b: Side
    overall: Group  # of the steps looked at: all, or those with `contains` in their context
    a_better: int  # of those steps: A's loss is the lower
    a_ahead: list[Step]  # the widest gain first
    b_ahead: list[Step]  # the widest loss first
    by_frequency: list[Group]  # of the word, in training
    by_pair: list[Group]  # of the word after its previous word, in training
    by_previous: list[Group]  # previous words, those that make A better first
    paper_cases: list[Case] | None  # None: another text than the paper's


def compare_runs(
    a: str | Path,
    b: str | Path,
    *,
    split: str = "test",
    n: int = 20,
    top: int = 5,
    contains: str | None = None,
    batch_size: int = 1,
    data_dir: Path | None = None,
    device: str | torch.device = "cpu",
    on_progress: OnStage | None = None,
) -> Comparison:
    """`compare` for two run folders; their readings are kept in the user's cache, so that asking again is quick."""
    runs = Run(Path(a)), Run(Path(b))
    same_text(*runs)
    corpus = run_corpus(runs[0].folder, data_dir)
    _check(corpus, split, contains)  # a slip shall not cost the time of reading
    names = _names(*runs)

    def opened(run: Run, name: str) -> tuple[LanguageModel, Reading]:
        model, ids = load(run.folder, device).model, corpus.splits[split]
        progress = _progress(on_progress, f"{name} reads {split}")
        return model, cached_reading(model, ids, batch_size, progress)

    model_a, reading_a = opened(runs[0], names[0])
    model_b, reading_b = opened(runs[1], names[1])
    return compare(
        model_a, model_b, corpus, split, names=names, n=n, top=top, contains=contains,
        readings=(reading_a, reading_b), on_progress=on_progress,
    )  # fmt: skip


def compare(
    a: LanguageModel,
    b: LanguageModel,
    corpus: Corpus,
    split: str = "test",
    *,
    names: tuple[str, str] = ("A", "B"),
    n: int = 20,  # steps shown, in each direction
    top: int = 5,  # words shown of a distribution
    contains: str | None = None,
    readings: tuple[Reading, Reading] | None = None,  # where they have been made already
    on_progress: OnStage | None = None,
) -> Comparison:
    """The steps where A beats B by the widest margin and the reverse, what both said there, and the gain by group."""
    if n < 1 or top < 1:
        raise ValueError(f"n and top must be at least 1, got {n} and {top}")
    _check(corpus, split, contains)
    ids = corpus.splits[split]
    if readings is None:
        progress = [_progress(on_progress, f"{name} reads {split}") for name in names]
        readings = read(a, ids, on_progress=progress[0]), read(b, ids, on_progress=progress[1])
    for name, reading in zip(names, readings, strict=True):
        if not bool(reading.nll.isfinite().all()):
            raise UserError(f"{name} has losses that are no numbers: its weights are damaged or its training diverged.")
    around = Surroundings(ids, corpus)
    chosen, losses = _chosen(around, contains, split), [r.nll.double().numpy() for r in readings]
    gain = losses[1] - losses[0]

    order = chosen[np.argsort(-gain[chosen], kind="stable")]
    ahead = [s for s in order[:n].tolist() if gain[s] > 0]
    behind = [s for s in order[::-1][:n].tolist() if gain[s] < 0]
    cases = find_cases(around.ids, corpus.words) if (corpus.name, split) == (CORPUS, SPLIT) else None
    wanted = {*ahead, *behind, *(s for s in (cases or {}).values() if s is not None)}
    steps = _steps(around, (a, b), readings, wanted, top, _progress(on_progress, "looking closer"))

    train, previous, targets = corpus.splits["train"].numpy(), around.ids[:-1][chosen], around.ids[1:][chosen]
    rows = losses[0][chosen], losses[1][chosen], around.lines[chosen]
    size = corpus.vocab_size
    return Comparison(
        corpus=corpus.name,
        level=corpus.level,
        split=split,
        contains=contains,
        columns=readings[0].states.shape[1],
        tokens=len(gain),
        a=_side(names[0], a, readings[0]),
        b=_side(names[1], b, readings[1]),
        overall=grouped(["all"], np.zeros_like(chosen), *rows)[0],
        a_better=int((gain[chosen] > 0).sum()),
        a_ahead=[steps[s] for s in ahead],
        b_ahead=[steps[s] for s in behind],
        by_frequency=grouped(*decades(word_counts(train, targets, size)), *rows),
        by_pair=grouped(*decades(pair_counts(train, previous, targets, size)), *rows),
        by_previous=by_previous_word(corpus.words, previous, *rows),
        paper_cases=None if cases is None else [Case(c, None if s is None else steps[s]) for c, s in cases.items()],
    )


def same_text(a: Run, b: Run) -> None:
    """One sentence for two runs that cannot be compared."""
    if a.folder.resolve() == b.folder.resolve():
        raise UserError(f"{a.folder} and {b.folder} are the same run: name two.")
    corpora = a.recipe().data.corpus, b.recipe().data.corpus
    if a.info().corpus_fingerprint != b.info().corpus_fingerprint:
        on = " and ".join(corpora)
        if corpora[0] == corpora[1]:
            on = f"different versions of {corpora[0]}, or at different levels"
        raise UserError(f"{a.folder} and {b.folder} were trained on {on}: compare runs over the same text.")
    if a.words() != b.words():
        raise UserError(f"{a.folder} and {b.folder} have different vocabularies: compare runs that share one.")


def _check(corpus: Corpus, split: str, contains: str | None) -> None:
    if split not in corpus.splits:
        raise UserError(f'there is no split "{split}": choose valid, test or train.')
    if len(corpus.splits[split]) < 2:
        raise UserError(f"the {split} split of {corpus.name} has no token to predict: choose another.")
    if contains is not None:
        phrase_ids(contains, corpus)


def _chosen(around: Surroundings, contains: str | None, split: str) -> np.ndarray:
    if contains is None:
        return np.arange(len(around.lines))
    chosen = steps_with(around.ids, phrase_ids(contains, around.corpus), around.starts)
    if len(chosen) == 0:
        raise UserError(f'{split} has no step with "{contains}" in its context: try another split or word.')
    return chosen


def _steps(
    around: Surroundings,
    models: tuple[LanguageModel, LanguageModel],
    readings: tuple[Reading, Reading],
    wanted: set[int],
    top: int,
    progress: Callable[[int, int], object],
) -> dict[int, Step]:
    """What both models say at each wanted step."""
    words = around.corpus.words
    predictions: list[dict[int, Prediction]] = []
    for i, (model, reading) in enumerate(zip(models, readings, strict=True)):
        said = {}
        for step, g in hidden_at(model, torch.from_numpy(around.ids), reading, wanted):
            said[step] = predict(model, g, int(around.ids[step + 1]), words, top)
            progress(i * len(wanted) + len(said), 2 * len(wanted))
        predictions.append(said)
    steps = {}
    for s in wanted:
        a, b = predictions[0][s], predictions[1][s]
        reference, context, rest = words[around.ids[s + 1]], around.context(s), around.continuation(s)
        steps[s] = Step(s + 1, context, reference, rest, b.nll - a.nll, a, b)
    return steps


def _side(name: str, model: LanguageModel, reading: Reading) -> Side:
    nll = reading.nll.double().mean().item()
    if not isinstance(model.head, MoSHead):  # MoCHead is a MoSHead
        return Side(name, "softmax", 1, model.n_parameters(), nll)
    kind: HeadName = "moc" if isinstance(model.head, MoCHead) else "mos"
    return Side(name, kind, model.head.n_components, model.n_parameters(), nll)


def _names(a: Run, b: Run) -> tuple[str, str]:
    """The folders' own names, or as much of their paths as tells them apart."""
    one, two = a.folder.resolve(), b.folder.resolve()
    return (one.name, two.name) if one.name != two.name else (str(a.folder), str(b.folder))


def _progress(on_progress: OnStage | None, what: str) -> Callable[[int, int], object]:
    return lambda done, total: on_progress(what, done, total) if on_progress else None
