"""Loaded runs: text to ids and back, log-probabilities, components and continuations."""

import math

import pytest
import torch

import highrank
from helpers import CPU, changed
from highrank.data.corpus import read_corpus
from highrank.errors import UserError
from highrank.runs.folder import Run
from highrank.runs.training import train_run


@pytest.fixture
def model(toy_corpus, tmp_path):
    train_run(changed(max_epochs=1), toy_corpus, Run(tmp_path / "run"), CPU)
    return highrank.load(tmp_path / "run")


def test_ids_become_the_text_again(model):
    ids = model.encode("the cat sees\na dog")
    assert [model.words[i] for i in ids] == ["the", "cat", "sees", "<eos>", "a", "dog"]
    assert model.decode(ids) == model.decode(ids.tolist()) == "the cat sees\na dog"


def test_the_probabilities_of_the_next_word_sum_to_one(model):
    total = sum(math.exp(model.log_prob(f"the cat {word}")[-1]) for word in model.words)
    assert total == pytest.approx(1.0, abs=1e-5)


def test_log_prob_starts_after_the_end_of_a_line(model):
    start = torch.tensor([model.codec.eos])
    expected, _ = model.model.log_prob(start[:, None], model.model.initial_state(1))
    assert model.log_prob("cat").item() == pytest.approx(expected[0, 0, model.encode("cat")].item(), rel=1e-5)


def test_a_space_at_the_start_of_a_text_counts(toy_folder, tmp_path):
    corpus = read_corpus(toy_folder, level="char")
    train_run(changed(max_epochs=1), corpus, Run(tmp_path / "run"), CPU)
    assert len(highrank.load(tmp_path / "run").log_prob(" the")) == 4


def test_components_explain_the_probability_of_each_token(model):
    rows = model.components("the cat sees", top=2)
    assert [row["token"] for row in rows] == ["the"] * 3 + ["cat"] * 3 + ["sees"] * 3
    for position, log_prob in enumerate(model.log_prob("the cat sees").tolist()):
        token = [row for row in rows if row["position"] == position]
        assert {row["component"] for row in token} == {1, 2, 3}
        assert sum(row["weight"] * row["probability"] for row in token) == pytest.approx(math.exp(log_prob), rel=1e-5)
        assert sum(row["responsibility"] for row in token) == pytest.approx(1.0, rel=1e-5)
        assert all(len(row["top"]) == 2 for row in token)


def test_a_softmax_has_no_components(toy_corpus, tmp_path):
    recipe = changed(model={"head": "softmax", "hidden_sizes": (6,)}, max_epochs=1)
    train_run(recipe, toy_corpus, Run(tmp_path / "run"), CPU)
    with pytest.raises(UserError, match="softmax"):
        highrank.load(tmp_path / "run").components("the cat")


def test_a_seed_repeats_a_text(model):
    texts = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        texts.append(model.generate("the cat", length=20))
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].startswith("the cat")


def test_generate_loads_the_run(model):
    expected = model.generate("the cat", length=5, temperature=0)
    assert highrank.generate(model.run.folder, "the cat", length=5, temperature=0) == expected


def test_a_beam_search_starts_with_the_likeliest_word(model):
    best, second = model.beam_search("the cat", beam_size=2, length=1)
    assert best.log_prob >= second.log_prob
    assert best.text == model.generate("the cat", length=1, temperature=0)


@pytest.mark.parametrize("options", [{"temperature": -1.0}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.5}])
def test_impossible_sampling_is_an_error(model, options):
    with pytest.raises(ValueError, match="sampling"):
        model.generate("the cat", **options)


@pytest.mark.parametrize("method", ["log_prob", "components", "generate", "beam_search"])
def test_an_empty_text_is_an_error(model, method):
    with pytest.raises(UserError, match="empty"):
        getattr(model, method)("")


def test_loading_a_run_draws_no_random_numbers(model):
    before = torch.get_rng_state()
    highrank.load(model.run.folder)
    assert torch.equal(torch.get_rng_state(), before)
