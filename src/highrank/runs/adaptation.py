"""The two methods by which a model adapts to the text it reads, behind one interface: dynamic evaluation and the cache.

method = DynamicEvaluation(model, corpus, on_stage)
tuned = method.tune(valid_ids, method.published)
method.evaluate(test_ids, tuned.best, "test")
"""

from functools import partial

from torch import Tensor

from highrank.data.corpus import Corpus
from highrank.evaluation.cache import cache_evaluate
from highrank.evaluation.dynamic import dynamic_evaluate
from highrank.evaluation.perplexity import Evaluation
from highrank.evaluation.tune import OnPoint, Tuned, tune_cache, tune_dynamic
from highrank.models.language_model import LanguageModel
from highrank.progress import OnStage, no_stages
from highrank.recipes import cache_settings, dynamic_settings
from highrank.recipes.recipe import CacheSettings, DynamicSettings
from highrank.runs.cache import cached_statistics


class DynamicEvaluation:
    """Dynamic evaluation of one model. The gradient statistics are computed when they are first needed."""

    def __init__(self, model: LanguageModel, corpus: Corpus, on_stage: OnStage = no_stages) -> None:
        self.published = dynamic_settings(corpus.name)
        self._model = model
        self._train = corpus.splits["train"]
        self._on_stage = on_stage
        self._statistics: dict[tuple[int, int], list[Tensor]] = {}

    def evaluate(self, ids: Tensor, settings: DynamicSettings, stage: str) -> Evaluation:
        """Compute the perplexity of `ids`."""
        return dynamic_evaluate(self._model, ids, self.prepare(settings), settings, partial(self._on_stage, stage))

    def tune(self, ids: Tensor, start: DynamicSettings, on_point: OnPoint | None = None) -> Tuned[DynamicSettings]:
        """Search for the best settings on `ids`."""
        on_progress = partial(self._on_stage, "tuning dynamic evaluation")
        return tune_dynamic(self._model, ids, self.prepare(start), start, on_point, on_progress)

    def prepare(self, settings: DynamicSettings) -> list[Tensor]:
        """Return the gradient statistics, computing them if necessary. The other methods call it themselves."""
        key = (settings.segment, settings.stats_batch_size)  # the other settings do not change the statistics
        if key not in self._statistics:
            on_progress = partial(self._on_stage, "gradient statistics")
            self._statistics[key] = cached_statistics(self._model, self._train, settings, on_progress)
        return self._statistics[key]


class CacheEvaluation:
    """Evaluation of one model with the continuous cache."""

    def __init__(self, model: LanguageModel, corpus: Corpus, on_stage: OnStage = no_stages) -> None:
        self.published = cache_settings(corpus.name)
        self._model = model
        self._on_stage = on_stage

    def prepare(self, settings: CacheSettings) -> None:
        """Do nothing: the cache needs no preparation."""

    def evaluate(self, ids: Tensor, settings: CacheSettings, stage: str) -> Evaluation:
        """Compute the perplexity of `ids`."""
        return cache_evaluate(self._model, ids, settings, on_progress=partial(self._on_stage, stage))

    def tune(self, ids: Tensor, start: CacheSettings, on_point: OnPoint | None = None) -> Tuned[CacheSettings]:
        """Search for the best settings on `ids`. It tries many points at once and does not call `on_point`."""
        return tune_cache(self._model, ids, start, partial(self._on_stage, "tuning the cache"))
