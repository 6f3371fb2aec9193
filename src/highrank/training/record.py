"""Run -> record: what a run came to, on one page of JSON that can stand without its weights.

`summarize` writes summary.json into the run's folder whenever training ends or pauses. `record` adds what needs the
weights, while they are at hand: dynamic evaluation and the cache. Made again of the same state, a record keeps what it
has and gains what is new. `highrank report` reads records and nothing else.

    valid_ppl, test_ppl    of the best weights on validation, in float32, one stream
    stages                 the same at the end of training (stage 0) and of each finetuning stage
    overrides              where the run's settings differ from the recipe of that name
    pieces                 the starts of a run that was resumed or carried elsewhere: machine, commit, time
    seconds, epochs        in all, over every piece
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from highrank.data.corpus import Corpus, cache_folder
from highrank.evaluation.cache import cache_evaluate
from highrank.evaluation.dynamic import cached_statistics, dynamic_evaluate
from highrank.evaluation.perplexity import Evaluation, OnProgress, evaluate
from highrank.evaluation.tune import OnPoint, Settings, tune_cache, tune_dynamic
from highrank.files import write_json
from highrank.recipes import cache_settings, dynamic_settings, overrides
from highrank.recipes.recipe import CacheSettings, DynamicSettings
from highrank.training import checkpoint as checkpoints
from highrank.training.checkpoint import Progress, stage_result
from highrank.training.provenance import provenance
from highrank.training.run import Run, load

SPLITS = ("valid", "test")
CURVE = ("epoch", "seconds", "train_ppl", "valid_ppl")
Watch = Callable[[str], OnProgress]  # what is about to start -> whom to tell (done, total)


def unwatched(what: str) -> OnProgress:
    return lambda done, total: None


def summarize(
    run: Run, corpus: Corpus, device: torch.device, outcome: str, batch_size: int = 1, watch: Watch = unwatched
) -> dict[str, Any]:
    """Perplexities of the run's best weights in float32, with everything a record needs, written to summary.json."""
    info = run.info()
    progress = checkpoints.load_progress(run.folder)
    model = load(run.folder, device).model
    results = {
        f"{split}_ppl": evaluate(model, corpus.splits[split], batch_size, on_progress=watch(split)).perplexity
        for split in SPLITS
    }
    epochs = run.epochs(progress.epoch)
    summary = {
        "recipe": info["recipe"]["name"],
        "overrides": overrides(info["recipe"]),
        "outcome": outcome,
        "epochs": progress.epoch,
        "updates": progress.step,
        "best_epoch": progress.best_epoch,
        "stage": progress.stage,
        "stages": [*progress.stages, stage_result(progress, results)],
        "parameters": model.n_parameters(),
        **results,
        "eval_batch_size": batch_size,
        "seconds": progress.seconds,
        "pieces": progress.pieces,
        "skipped": progress.skipped,
        "seed": info["recipe"]["train"]["seed"],
        "provenance": info["provenance"],
        "settings": info["recipe"],
        "averaged_from": next((line["epoch"] for line in epochs if line["averaged"]), None),
        "curve": {key: [_short(line[key]) for line in epochs] for key in CURVE},
    }
    write_json(run.summary_file, summary)
    return summary


def record(
    run: Run,
    corpus: Corpus,
    device: torch.device,
    *,
    dynamic: bool = False,
    cache: bool = False,
    tune: bool = False,
    tune_tokens: int | None = None,
    watch: Watch = unwatched,
    on_point: OnPoint | None = None,
    known: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The run's summary, made now unless the one at hand is of this very state, and how it does when it adapts.

    `dynamic` and `cache` use the published settings; `tune` adds the best ones found on validation, or on its first
    `tune_tokens` tokens, beside them. `known` is an earlier record of the run, added to if nothing was trained since.
    """
    progress = checkpoints.load_progress(run.folder)
    summary = next((told for told in (known, run.summary()) if told and _tells_of(told, progress)), None)
    if summary is None:
        summary = summarize(run, corpus, device, _outcome(progress), watch=watch)
    adapted: dict[str, Any] = {}
    loaded = load(run.folder, device)
    model, valid = loaded.model, corpus.splits["valid"][: None if tune_tokens is None else tune_tokens + 1]
    if dynamic:
        settings = dynamic_settings(loaded.recipe.data.corpus)
        statistics = cached_statistics(
            model, run.model_file, corpus.splits["train"], settings, cache_folder(), watch("gradient statistics")
        )

        def learn(ids: Tensor, how: DynamicSettings, tell: OnProgress) -> Evaluation:
            return dynamic_evaluate(model, ids, statistics, how, tell)

        adapted["dynamic"] = _on_both(learn, settings, corpus, device, watch, "dynamic")
        if tune:
            found = tune_dynamic(model, valid, statistics, settings, on_point, watch("tuning dynamic evaluation"))
            adapted["dynamic_tuned"] = _on_both(learn, found.best, corpus, device, watch, "dynamic, tuned")
            adapted["dynamic_tuned"]["tuning"] = found.as_json()
    if cache:
        usual = cache_settings(loaded.recipe.data.corpus)

        def remember(ids: Tensor, how: CacheSettings, tell: OnProgress) -> Evaluation:
            return cache_evaluate(model, ids, how, on_progress=tell)

        adapted["cache"] = _on_both(remember, usual, corpus, device, watch, "cache")
        if tune:
            best = tune_cache(model, valid, usual, watch("tuning the cache"))
            adapted["cache_tuned"] = _on_both(remember, best.best, corpus, device, watch, "cache, tuned")
            adapted["cache_tuned"]["tuning"] = best.as_json(most=20)
    return {**summary, **adapted}


def _tells_of(summary: dict[str, Any], progress: Progress) -> bool:
    """Whether a summary or a record is of this very state, over the whole stream; the oldest know their epoch only."""
    same = summary["updates"] == progress.step if "updates" in summary else summary.get("epochs") == progress.epoch
    return bool(same and summary.get("eval_batch_size") == 1)


def record_of(run: Run, data: Any) -> bool:
    """Whether `data` is a record of this run, be it of an earlier state or made where it was carried from."""
    return isinstance(data, dict) and data.get("provenance", {}).get("started") == run.info()["provenance"]["started"]


def _on_both(
    adapt: Callable[[Tensor, Settings, OnProgress], Evaluation],
    settings: Settings,
    corpus: Corpus,
    device: torch.device,
    watch: Watch,
    name: str,
) -> dict[str, Any]:
    """One way to adapt, on validation and test; where may be another machine than the one that trained."""
    where, began = provenance(device), time.perf_counter()
    results = {f"{s}_ppl": adapt(corpus.splits[s], settings, watch(f"{s}, {name}")).perplexity for s in SPLITS}
    seconds = time.perf_counter() - began
    return {"settings": dataclasses.asdict(settings), **results, "seconds": seconds, "provenance": where}


def _outcome(progress: Progress) -> str:
    """Why training stopped last; a run that was killed, or comes from an older version, was cut off."""
    if progress.finished:
        return "finished"
    return (progress.pieces[-1]["outcome"] if progress.pieces else None) or "cut off"


def _short(value: Any) -> Any:
    """A curve is drawn, not computed with: four decimals keep a record readable."""
    return round(value, 4) if isinstance(value, float) else value
