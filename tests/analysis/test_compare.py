"""Comparing two models: the steps shown have the widest margins, and the groups add up to the whole."""

import dataclasses

import numpy as np
import pytest
import torch

from highrank.analysis.compare import check_request, compare
from highrank.analysis.context import Surroundings
from highrank.analysis.groups import Group, decades, group_by_previous_word, group_losses, training_counts
from highrank.analysis.paper_cases import PAPER_CASES, find_cases
from highrank.analysis.reading import read
from highrank.data.corpus import EOS, Corpus, load_corpus, number_tokens
from highrank.errors import UserError
from highrank.models import build_model
from highrank.recipes import ModelSpec


def model(corpus, head, seed):
    torch.manual_seed(seed)
    built = build_model(ModelSpec(head, embed_dim=6, hidden_sizes=(9, 6), n_components=3), corpus.vocab_size).eval()
    for p in built.parameters():
        p.data.mul_(5)
    return built


def compared(a, b, corpus, split="test", **options):
    readings = read(a, corpus.ids(split)), read(b, corpus.ids(split))
    return compare(a, b, corpus, readings, split, **options)


@pytest.fixture
def pair(toy_corpus):
    return model(toy_corpus, "mos", 1), model(toy_corpus, "moc", 2)


def test_the_widest_margins_are_found_in_both_directions(toy_corpus, pair):
    ids = toy_corpus.splits["test"]
    a, b = (read(m, ids).nll.double() for m in pair)
    gain = b - a
    found = compared(*pair, toy_corpus, n=7, top=4, names=("one", "two"))
    order = gain.argsort(descending=True).tolist()
    for steps, best_first in ((found.a_ahead, order), (found.b_ahead, order[::-1])):
        by_phrase = {}
        for s in best_first:
            by_phrase.setdefault(tuple(ids[max(0, s - 2) : s + 2].tolist()), s + 1)
        assert [s.position for s in steps] == list(by_phrase.values())[:7]
    for step in (*found.a_ahead, *found.b_ahead):
        s = step.position - 1
        assert step.gain == pytest.approx(gain[s].item(), rel=1e-4)
        assert step.reference == toy_corpus.words[ids[s + 1]]
        assert step.context == [toy_corpus.words[i] for i in ids[s + 1 - len(step.context) : s + 1]]
        assert len(step.a.top) == len(step.a.components[0].top) == 4
        assert step.a.nll == pytest.approx(a[s].item(), rel=1e-4)
        assert step.b.nll == pytest.approx(b[s].item(), rel=1e-4)
    assert (found.a.name, found.a.head, found.a.n_components) == ("one", "mos", 3)
    assert found.b.nll == pytest.approx(b.mean().item())
    assert found.a_better == int((gain > 0).sum())
    assert found.paper_cases is None


def test_steps_that_repeat_a_phrase_are_shown_once(toy_corpus, pair):
    ids = toy_corpus.splits["test"]
    found = compared(*pair, toy_corpus, n=1000)
    for steps in (found.a_ahead, found.b_ahead):
        phrases = [tuple(ids[max(0, s.position - 3) : s.position + 1].tolist()) for s in steps]
        assert len(phrases) == len(set(phrases)) > 5
    gain = read(pair[1], ids).nll - read(pair[0], ids).nll
    assert len(found.a_ahead) < (gain > 0).sum()


def test_groups_add_up_to_the_whole(toy_corpus, pair):
    found = compared(*pair, toy_corpus)
    assert found.tokens == found.overall.steps == len(toy_corpus.splits["test"]) - 1
    assert found.overall.gain == pytest.approx(found.b.nll - found.a.nll)
    for groups in (found.by_frequency, found.by_pair):
        assert sum(g.steps for g in groups) == found.tokens
        assert sum(g.steps * g.gain for g in groups) == pytest.approx(found.overall.gain * found.tokens)


def test_groups_use_counts_of_the_training_split(toy_corpus, pair, monkeypatch):
    monkeypatch.setattr("highrank.analysis.compare.PIECE_TOKENS", 100)
    for split in ("valid", "train"):  # only the longer one has previous words of enough steps
        ids, found = toy_corpus.splits[split], compared(*pair, toy_corpus, split)
        train, previous, words = toy_corpus.splits["train"].numpy(), ids[:-1].numpy(), ids[1:].numpy()
        rows = *(read(m, ids).nll.double().numpy() for m in pair), Surroundings(ids, toy_corpus).lines
        word_counts, pair_counts = training_counts([train], previous, words, toy_corpus.vocab_size)
        assert found.by_frequency == group_losses(*decades(word_counts), *rows)
        assert found.by_pair == group_losses(*decades(pair_counts), *rows)
        assert found.by_previous == group_by_previous_word(toy_corpus.words, previous, *rows)
    assert len(found.by_frequency) == 2
    assert len(found.by_previous) > 5


def test_contains_restricts_steps_and_groups(toy_corpus, pair):
    found = compared(*pair, toy_corpus, contains="bird", n=1000)
    whole = compared(*pair, toy_corpus, n=1000)
    shown = [*found.a_ahead, *found.b_ahead]
    assert 0 < len(shown) <= found.overall.steps < found.tokens
    assert all("bird" in (*s.context, s.reference) for s in shown)
    expected = {s.position for s in (*whole.a_ahead, *whole.b_ahead) if "bird" in (*s.context, s.reference)}
    assert {s.position for s in shown} == expected
    assert found.a_better >= len(found.a_ahead)  # each phrase is shown once
    assert sum(g.steps for g in found.by_frequency) == found.overall.steps
    assert found.a.nll == whole.a.nll  # perplexities stay those of the split


def test_a_model_has_no_gain_over_itself(toy_corpus, pair):
    found = compared(pair[0], pair[0], toy_corpus)
    assert found.a_ahead == found.b_ahead == []
    assert found.a_better == 0
    assert found.overall == Group("all", found.tokens, found.a.nll, found.a.nll, 0.0, 0.0)


def test_the_papers_cases_are_found_by_their_words():
    case = PAPER_CASES[2]
    text = ["the", *case.key.split(), case.reference, "x", EOS] * 3
    words, splits = number_tokens({"train": text, "valid": text, "test": text})
    corpus = Corpus("penn", "word", words, splits, "x")
    models = model(corpus, "mos", 1), model(corpus, "softmax", 2)
    found = compared(*models, corpus)
    cases = found.paper_cases
    assert (found.b.head, found.b.n_components) == ("softmax", 1)
    assert [c.paper.number for c in cases] == [1, 2, 3, 4, 5, 6]
    assert [c.step is not None for c in cases] == [False, False, True, False, False, False]
    assert cases[2].step.position == 1 + len(case.key.split())  # the first of three
    assert cases[2].step.reference == case.reference
    assert cases[2].step.context[-len(case.key.split()) :] == case.key.split()
    assert compared(*models, corpus, "valid").paper_cases is None
    assert compared(*models, dataclasses.replace(corpus, name="mine")).paper_cases is None


def test_the_papers_cases_are_in_its_test_set(corpora):
    penn = load_corpus("penn", corpora)
    ids = penn.splits["test"].numpy()
    for case, step in find_cases(ids, penn.words).items():
        assert step is not None, case
        assert penn.words[ids[step + 1]] == case.reference


def test_losses_that_are_not_finite_raise(toy_corpus, pair):
    pair[1].head.bias.data[0] = np.nan
    with pytest.raises(UserError, match="two"):
        compared(*pair, toy_corpus, names=("one", "two"))


def test_an_unknown_split_raises(toy_corpus):
    with pytest.raises(UserError, match="tset"):
        check_request(toy_corpus, "tset", None)


def test_a_split_of_one_token_raises(toy_corpus):
    one_token = dataclasses.replace(toy_corpus, splits={**toy_corpus.splits, "test": toy_corpus.splits["test"][:1]})
    with pytest.raises(UserError, match="test"):
        check_request(one_token, "test", None)


def test_a_phrase_that_never_occurs_raises(toy_corpus, pair):
    rare = dataclasses.replace(toy_corpus, words=[*toy_corpus.words, "nowhere"])
    with pytest.raises(UserError, match="nowhere"):
        compared(*pair, rare, contains="nowhere")
