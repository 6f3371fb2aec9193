"""A prediction reports the model's own distribution, and its components combine to it."""

import math

import pytest
import torch

from highrank.analysis.prediction import predict
from highrank.models import build_model
from highrank.recipes import ModelSpec

WORDS = [f"w{i}" for i in range(30)]


def model(head):
    built = build_model(ModelSpec(head=head, embed_dim=6, hidden_sizes=(6,), n_components=4), 30)
    for p in built.parameters():
        p.data.mul_(8)
    built.head.bias.data.normal_()
    return built.double().eval()


@pytest.mark.parametrize("head", ["softmax", "moc", "mos"])
def test_top_words_and_rank_come_from_log_prob(head):
    lm, g = model(head), torch.randn(6, dtype=torch.float64)
    p = lm.head.log_prob(g).exp()
    order = p.argsort(descending=True).tolist()
    for place in (0, 3, 29):
        prediction = predict(lm, g, order[place], WORDS, top=5)
        assert prediction.rank == place + 1
        assert prediction.p_reference == pytest.approx(p[order[place]].item())
        assert prediction.nll == pytest.approx(-math.log(prediction.p_reference))
        assert [x.word for x in prediction.top] == [WORDS[i] for i in order[:5]]
        assert [x.p for x in prediction.top] == pytest.approx(p[order[:5]].tolist())
    assert len(predict(lm, g, 0, WORDS, top=99).top) == 30


def test_mos_components_average_to_the_prediction():
    lm, g = model("mos"), torch.randn(6, dtype=torch.float64)
    prediction = predict(lm, g, 7, WORDS, top=30)
    weights = [c.weight for c in prediction.components]
    assert sorted(c.index for c in prediction.components) == [1, 2, 3, 4]
    assert weights == sorted(weights, reverse=True)
    assert sum(weights) == pytest.approx(1)
    for x in prediction.top:
        parts = [c.weight * next(y.p for y in c.top if y.word == x.word) for c in prediction.components]
        assert sum(parts) == pytest.approx(x.p)
    assert sum(c.share for c in prediction.components) == pytest.approx(1)
    for c in prediction.components:
        assert c.share == pytest.approx(c.weight * c.p_reference / prediction.p_reference)


def test_moc_components_have_the_prediction_as_geometric_mean():
    lm, g = model("moc"), torch.randn(6, dtype=torch.float64)
    prediction = predict(lm, g, 7, WORDS, top=30)
    assert all(c.share is None for c in prediction.components)
    products = {
        x.word: math.prod(next(y.p for y in c.top if y.word == x.word) ** c.weight for c in prediction.components)
        for x in prediction.top
    }
    total = sum(products.values())
    for x in prediction.top:
        assert products[x.word] / total == pytest.approx(x.p)


def test_a_softmax_has_no_components():
    assert predict(model("softmax"), torch.randn(6, dtype=torch.float64), 7, WORDS, top=3).components == []
