"""Run -> record: what a run came to, on one page of JSON that can stand without its weights.

`summarize` writes summary.json into the run's folder whenever training ends or pauses. `record` adds what needs the
weights, while they are at hand: dynamic evaluation and the cache. `highrank report` reads records and nothing else.

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

from highrank.data.corpus import Corpus, cache_folder
from highrank.evaluation.cache import cache_evaluate
from highrank.evaluation.dynamic import cached_statistics, dynamic_evaluate
from highrank.evaluation.perplexity import evaluate
from highrank.files import write_json
from highrank.recipes import cache_settings, dynamic_settings, overrides
from highrank.training import checkpoint as checkpoints
from highrank.training.checkpoint import Progress, stage_result
from highrank.training.run import Loaded, Run, load

SPLITS = ("valid", "test")
CURVE = ("epoch", "seconds", "train_ppl", "valid_ppl")
Watch = Callable[[str], Callable[[int, int], object]]  # what is about to start -> whom to tell (done, total)


def unwatched(what: str) -> Callable[[int, int], object]:
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
    # A run that was killed may have told more than its checkpoint knows.
    epochs = [line for line in run.metrics() if line["kind"] == "epoch" and line["epoch"] <= progress.epoch]
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
        "curve": {
            key: [_short(line[key]) for line in epochs] for key in ("epoch", "seconds", "train_ppl", "valid_ppl")
        },
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
    watch: Watch = unwatched,
) -> dict[str, Any]:
    """The run's summary, made now unless the one at hand is of this very state, and how it does when it adapts."""
    progress = checkpoints.load_progress(run.folder)
    summary = run.summary()
    if summary is None or summary.get("updates") != progress.step or summary["eval_batch_size"] != 1:
        summary = summarize(run, corpus, device, _outcome(progress), watch=watch)
    loaded = load(run.folder, device)
    adapted = {}
    if dynamic:
        adapted["dynamic"] = _dynamic(run, loaded, corpus, watch)
    if cache:
        adapted["cache"] = _cache(loaded, corpus, watch)
    return {**summary, **adapted}


def _dynamic(run: Run, loaded: Loaded, corpus: Corpus, watch: Watch) -> dict[str, Any]:
    settings = dynamic_settings(loaded.recipe.data.corpus)
    began = time.perf_counter()
    train = corpus.splits["train"]
    statistics = cached_statistics(
        loaded.model, run.model_file, train, settings, cache_folder(), watch("gradient statistics")
    )
    results = {
        f"{split}_ppl": dynamic_evaluate(
            loaded.model, corpus.splits[split], statistics, settings, watch(f"{split}, dynamic")
        ).perplexity
        for split in SPLITS
    }
    return {"settings": dataclasses.asdict(settings), **results, "seconds": time.perf_counter() - began}


def _cache(loaded: Loaded, corpus: Corpus, watch: Watch) -> dict[str, Any]:
    settings = cache_settings(loaded.recipe.data.corpus)
    began = time.perf_counter()
    results = {
        f"{split}_ppl": cache_evaluate(
            loaded.model, corpus.splits[split], settings, on_progress=watch(f"{split}, cache")
        ).perplexity
        for split in SPLITS
    }
    return {"settings": dataclasses.asdict(settings), **results, "seconds": time.perf_counter() - began}


def _outcome(progress: Progress) -> str:
    """Why training stopped last; a run that was killed, or comes from an older version, was cut off."""
    if progress.finished:
        return "finished"
    return (progress.pieces[-1]["outcome"] if progress.pieces else None) or "cut off"


def _short(value: Any) -> Any:
    """A curve is drawn, not computed with: four decimals keep a record readable."""
    return round(value, 4) if isinstance(value, float) else value
