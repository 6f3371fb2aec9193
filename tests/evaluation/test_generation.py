from itertools import islice

import pytest
import torch

from highrank.evaluation.generation import generate
from highrank.models import LanguageModel


@pytest.fixture
def model():
    torch.manual_seed(1)
    model = LanguageModel(20, head="mos", embed_dim=6, hidden_sizes=(8, 5), n_components=3)
    for p in model.parameters():
        p.data.mul_(8)  # sharp enough for the order of words to matter
    return model


def sample(model, n=30, seed=0, **options):
    stream = generate(model, torch.tensor([3, 4]), generator=torch.Generator().manual_seed(seed), **options)
    return list(islice(stream, n))


def test_the_seed_decides(model):
    assert sample(model) == sample(model)
    assert sample(model) != sample(model, seed=1)


def test_temperature_zero_is_greedy(model):
    greedy = sample(model, temperature=0)
    assert greedy == sample(model, seed=5, temperature=0)
    assert greedy == sample(model, seed=7, top_k=1)
    assert greedy == sample(model, seed=9, top_p=1e-6)
    log_p, _ = model.log_prob(torch.tensor([[3], [4]]), model.initial_state(1))
    assert greedy[0] == log_p[-1, 0].argmax().item()


def test_top_k_and_top_p_keep_the_likeliest(model):
    log_p, _ = model.eval().log_prob(torch.tensor([[3], [4]]), model.initial_state(1))
    order = log_p[-1, 0].argsort(descending=True).tolist()
    p = log_p[-1, 0].exp()
    first = {sample(model, 1, seed, top_k=3)[0] for seed in range(60)}
    assert first <= set(order[:3])
    nucleus = order[: int((p[order].cumsum(0) < 0.6).sum()) + 1]
    assert {sample(model, 1, seed, top_p=0.6)[0] for seed in range(60)} <= set(nucleus)


def test_frequencies_follow_the_model(model):
    log_p, _ = model.eval().log_prob(torch.tensor([[3], [4]]), model.initial_state(1))
    p = log_p[-1, 0].exp().detach()
    counts = torch.zeros(20)
    for seed in range(600):
        counts[sample(model, 1, seed)[0]] += 1
    assert (counts / 600 - p).abs().max() < 0.08
