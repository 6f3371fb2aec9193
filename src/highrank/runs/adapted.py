"""How a run does when it adapts to what it reads: the parts of a record that need its weights and take long.

    dynamic, cache                with the published settings, on validation and test
    dynamic_tuned, cache_tuned    with those that do best on validation, and how they were found

Each part says where and when it was computed, which may be another machine than the one that trained. `part.py` lets
them grow split by split.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from highrank.data.corpus import Corpus, cache_folder
from highrank.evaluation.cache import cache_evaluate
from highrank.evaluation.dynamic import cached_statistics, dynamic_evaluate
from highrank.evaluation.perplexity import Evaluation
from highrank.evaluation.tune import OnPoint, tune_cache, tune_dynamic
from highrank.progress import OnProgress
from highrank.recipes import cache_settings, dynamic_settings
from highrank.recipes.recipe import CacheSettings, DynamicSettings
from highrank.runs.folder import Run, load
from highrank.runs.part import Part, Parts, Watch


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
) -> Iterator[tuple[str, Part]]:
    """Name and content of each part asked for, whenever it has grown.

    Who tunes wants the tuned part: one with the published settings is not made again if it is `known` already.
    """
    if not (dynamic or cache):
        return
    loaded = load(run.folder, device)
    model, text = loaded.model, loaded.recipe.data.corpus
    valid = corpus.splits["valid"][: None if tune_tokens is None else tune_tokens + 1]
    hows = [how for how, wanted in (("dynamic", dynamic), ("cache", cache)) if wanted]
    asked = [how + ending for how in hows for ending in (("", "_tuned") if tune else ("",))]
    parts = Parts(known, corpus.splits, device, watch, asked)

    def found_before(name: str) -> dict[str, Any] | None:
        """The outcome of a search on this much text, by a call that was cut off since."""
        tuning = parts.begun(name).get("tuning")
        return tuning if tuning and tuning["tokens"] == len(valid) - 1 else None

    if dynamic:
        published = dynamic_settings(text)
        statistics = cached_statistics(
            model, corpus.splits["train"], published, cache_folder(), watch("gradient statistics")
        )

        def learn(ids: Tensor, how: DynamicSettings, tell: OnProgress) -> Evaluation:
            return dynamic_evaluate(model, ids, statistics, how, tell)

        if not (tune and parts.has("dynamic", published)):
            yield from parts.grow("dynamic", learn, published)
        if tune:
            tuning = found_before("dynamic_tuned")
            if tuning is None:
                tell = watch("tuning dynamic evaluation")
                tuning = tune_dynamic(model, valid, statistics, published, on_point, tell).as_json()
            yield from parts.grow("dynamic_tuned", learn, DynamicSettings(**tuning["best"]), tuning)
    if cache:
        usual = cache_settings(text)

        def remember(ids: Tensor, how: CacheSettings, tell: OnProgress) -> Evaluation:
            return cache_evaluate(model, ids, how, on_progress=tell)

        if not (tune and parts.has("cache", usual)):
            yield from parts.grow("cache", remember, usual)
        if tune:
            tuning = found_before("cache_tuned")
            if tuning is None:
                tuning = tune_cache(model, valid, usual, watch("tuning the cache")).as_json(most=20)
            yield from parts.grow("cache_tuned", remember, CacheSettings(**tuning["best"]), tuning)
