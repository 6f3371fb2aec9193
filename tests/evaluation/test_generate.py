"""Sampling: filters in the right order, correct frequencies, and reproducible text."""

from itertools import islice

import pytest
import torch

from highrank.evaluation.generate import generate, sample_word
from highrank.models import build_model
from highrank.recipes import ModelSpec


@pytest.fixture
def model():
    torch.manual_seed(3)
    model = build_model(ModelSpec(head="mos", embed_dim=6, hidden_sizes=(8, 5), n_components=3, dropout_output=0.5), 20)
    for p in model.parameters():
        p.data.mul_(8)  # makes the predictions depend on the order of words
    return model  # in training mode: dropout must be switched off


def sample(model, n=30, seed=0, **options):
    stream = generate(model, torch.tensor([3, 4]), generator=torch.Generator().manual_seed(seed), **options)
    return list(islice(stream, n))


def test_the_seed_determines_the_text(model):
    assert sample(model) == sample(model)
    assert sample(model) != sample(model, seed=1)


def test_temperature_zero_is_greedy(model):
    greedy = sample(model, temperature=0)
    assert greedy == sample(model, seed=5, temperature=0)
    assert greedy == sample(model, seed=7, top_k=1)
    assert greedy == sample(model, seed=9, top_p=1e-6)


def test_every_word_is_predicted_from_all_words_before_it(model):
    text, cold = [3, 4], 0
    words = sample(model, temperature=0)
    model.eval()
    for word in words:
        log_p, _ = model.log_prob(torch.tensor(text)[:, None], model.initial_state(1))
        assert word == log_p[-1, 0].argmax().item()
        alone, _ = model.log_prob(torch.tensor([text[-1:]]), model.initial_state(1))
        cold += word != alone[0, 0].argmax().item()
        text.append(word)
    assert cold > 10  # the earlier words do matter for this model


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((1.0, None, None), [8, 4, 2, 1, 1]),
        ((2.0, None, None), [8**0.5, 2, 2**0.5, 1, 1]),
        ((0.5, None, None), [64, 16, 4, 1, 1]),
        ((1.0, 3, None), [8, 4, 2, 0, 0]),
        ((1.0, 99, None), [8, 4, 2, 1, 1]),
        ((1.0, None, 0.7), [8, 4, 0, 0, 0]),
        ((1.0, 3, 0.8), [8, 4, 0, 0, 0]),  # 12 / 14 of what top-k leaves reaches 0.8
        ((2.0, None, 0.7), [8**0.5, 2, 2**0.5, 0, 0]),
    ],
)
def test_temperature_then_top_k_then_top_p(options, expected):
    log_p, generator = torch.tensor([8.0, 4, 2, 1, 1]).log() - 7, torch.Generator().manual_seed(0)
    words = torch.stack([sample_word(log_p, *options, generator) for _ in range(2000)])
    share = torch.tensor(expected) / sum(expected)
    frequency = words.bincount(minlength=5) / 2000
    assert ((frequency == 0) == (share == 0)).all()
    assert (frequency - share).abs().max() < 0.05


def test_frequencies_follow_the_model(model):
    log_p, _ = model.eval().log_prob(torch.tensor([[3], [4]]), model.initial_state(1))
    p = log_p[-1, 0].exp().detach()
    counts = torch.zeros(20)
    for seed in range(600):
        counts[sample(model, 1, seed)[0]] += 1
    assert (counts / 600 - p).abs().max() < 0.08
