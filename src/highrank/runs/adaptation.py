"""Dynamic evaluation or the cache on the corpus of a run, with published settings or tuned ones."""

from collections.abc import Callable
from functools import partial

from torch import Tensor

from highrank.data.corpus import Corpus
from highrank.evaluation.cache import cache_evaluate
from highrank.evaluation.dynamic import dynamic_evaluate
from highrank.evaluation.perplexity import Evaluation
from highrank.evaluation.tune import OnPoint, Settings, Tuning, tune_cache, tune_dynamic
from highrank.models.language_model import LanguageModel
from highrank.progress import OnStage, no_stages
from highrank.recipes import cache_settings, dynamic_settings
from highrank.recipes.recipe import DynamicSettings
from highrank.runs.disk_cache import cached_statistics

# The published settings for a corpus, by method:
PUBLISHED: dict[str, Callable[[str], Settings]] = {"dynamic": dynamic_settings, "cache": cache_settings}


class AdaptiveEvaluation:
    """Dynamic evaluation or the cache for one model, depending on the type of `start`, the settings to begin with.

    Dynamic evaluation first computes gradient statistics, which takes minutes.
    """

    def __init__(self, model: LanguageModel, corpus: Corpus, start: Settings, on_stage: OnStage = no_stages) -> None:
        self.model = model
        self.corpus = corpus
        self.start = start
        self.on_stage = on_stage
        self.statistics: list[Tensor] = []
        if isinstance(start, DynamicSettings):
            on_progress = partial(on_stage, "gradient statistics")
            self.statistics = cached_statistics(model, corpus.ids("train"), start, on_progress)

    def evaluate(self, split: str, settings: Settings, label: str) -> Evaluation:
        """Compute the perplexity of a split; progress is reported under `label`."""
        ids = self.corpus.ids(split)
        on_progress = partial(self.on_stage, label)
        if isinstance(settings, DynamicSettings):
            return dynamic_evaluate(self.model, ids, self.statistics, settings, on_progress)
        return cache_evaluate(self.model, ids, settings, on_progress=on_progress)

    def tune(self, tokens: int | None, on_point: OnPoint | None) -> Tuning:
        """Search for the best settings on the first `tokens` of validation. The cache does not call `on_point`."""
        ids = self.corpus.ids("valid", None if tokens is None else tokens + 1)
        if isinstance(self.start, DynamicSettings):
            on_progress = partial(self.on_stage, "tuning dynamic evaluation")
            return tune_dynamic(self.model, ids, self.statistics, self.start, on_point, on_progress)
        return tune_cache(self.model, ids, self.start, partial(self.on_stage, "tuning the cache"))
