"""What looks at a model leaves its mode as it was."""

import pytest
import torch

from highrank.analysis.reading import read
from highrank.evaluation.cache import cache_probabilities
from highrank.evaluation.mode import in_eval_mode
from highrank.evaluation.perplexity import evaluate
from highrank.models.language_model import LanguageModel

IDS = torch.arange(7) % 5


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("look", [evaluate, read, lambda m, ids: cache_probabilities(m, ids, [2], [0.5])])
def test_the_mode_is_kept(look, training):
    model = LanguageModel(5, head="softmax", embed_dim=3, hidden_sizes=[3], dropout_output=0.9).train(training)
    modes = []
    model.backbone.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    look(model, IDS)
    assert modes
    assert not any(modes)
    assert model.training == model.backbone.training == training


def test_and_kept_when_it_fails():
    @in_eval_mode
    def fails(model, text, *, more=""):
        raise RuntimeError(f"{text}{more} {model.training}")

    model = torch.nn.Linear(1, 1)
    with pytest.raises(RuntimeError, match="no no False"):
        fails(model, "no", more=" no")
    assert model.training
