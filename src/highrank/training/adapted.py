"""How a run does when it adapts to what it reads: the parts of a record that need its weights and take long.

    dynamic, cache                with the published settings, on validation and test
    dynamic_tuned, cache_tuned    with those that do best on validation, and how they were found

Each part says where and when it was computed, which may be another machine than the one that trained.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from highrank.data.corpus import Corpus, cache_folder
from highrank.evaluation.cache import cache_evaluate
from highrank.evaluation.dynamic import cached_statistics, dynamic_evaluate
from highrank.evaluation.perplexity import Evaluation, OnProgress
from highrank.evaluation.tune import OnPoint, Settings, tune_cache, tune_dynamic
from highrank.recipes import cache_settings, dynamic_settings
from highrank.recipes.recipe import CacheSettings, DynamicSettings
from highrank.training.provenance import provenance
from highrank.training.run import Run, load

SPLITS = ("valid", "test")
Watch = Callable[[str], OnProgress]  # what is about to start -> whom to tell (done, total)


def unwatched(what: str) -> OnProgress:
    return lambda done, total: None


def adapted(
    run: Run,
    corpus: Corpus,
    device: torch.device,
    *,
    dynamic: bool,
    cache: bool,
    tune: bool,
    tune_tokens: int | None,  # of validation; None: all of it
    known: dict[str, Any],
    watch: Watch,
    on_point: OnPoint | None,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and content of each part asked for, as soon as it is there.

    Who tunes wants the tuned part: one with the published settings is not made again if it is `known` already.
    """
    if not (dynamic or cache):
        return
    loaded = load(run.folder, device)
    model, text = loaded.model, loaded.recipe.data.corpus
    valid = corpus.splits["valid"][: None if tune_tokens is None else tune_tokens + 1]

    def on_both(
        adapt: Callable[[Tensor, Settings, OnProgress], Evaluation], settings: Settings, name: str
    ) -> dict[str, Any]:
        where, began = provenance(device), time.perf_counter()
        results = {f"{s}_ppl": adapt(corpus.splits[s], settings, watch(f"{s}, {name}")).perplexity for s in SPLITS}
        seconds = time.perf_counter() - began
        return {"settings": dataclasses.asdict(settings), **results, "seconds": seconds, "provenance": where}

    def is_known(name: str, settings: Settings) -> bool:
        return tune and known.get(name, {}).get("settings") == dataclasses.asdict(settings)

    if dynamic:
        published = dynamic_settings(text)
        statistics = cached_statistics(
            model, run.model_file, corpus.splits["train"], published, cache_folder(), watch("gradient statistics")
        )

        def learn(ids: Tensor, how: DynamicSettings, tell: OnProgress) -> Evaluation:
            return dynamic_evaluate(model, ids, statistics, how, tell)

        if not is_known("dynamic", published):
            yield "dynamic", on_both(learn, published, "dynamic")
        if tune:
            found = tune_dynamic(model, valid, statistics, published, on_point, watch("tuning dynamic evaluation"))
            yield "dynamic_tuned", on_both(learn, found.best, "dynamic, tuned") | {"tuning": found.as_json()}
    if cache:
        usual = cache_settings(text)

        def remember(ids: Tensor, how: CacheSettings, tell: OnProgress) -> Evaluation:
            return cache_evaluate(model, ids, how, on_progress=tell)

        if not is_known("cache", usual):
            yield "cache", on_both(remember, usual, "cache")
        if tune:
            best = tune_cache(model, valid, usual, watch("tuning the cache"))
            yield "cache_tuned", on_both(remember, best.best, "cache, tuned") | {"tuning": best.as_json(most=20)}
