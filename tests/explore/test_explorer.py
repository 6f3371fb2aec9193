"""Scores and predictions at every position of a text, and continuations of it."""

import itertools

import pytest
import torch

from helpers import CPU
from highrank.evaluation.generate import continue_by_beam, generate
from highrank.explore.explorer import CHUNK, Explorer
from highrank.explore.model import added_texts, open_model

TEXT = "the cat sees a dog\nthe old bird eats"


def losses(reading):
    return [score.nll for score in reading.scores]


def ids_of(explorer, text):
    return [explorer.model.start, *(token.id for token in explorer.model.tokens(text))]


@torch.no_grad()
def truth(explorer, text):
    """Return the log-probabilities (T, V) that the model itself predicts for every position of a text."""
    model = explorer.model.model
    ids = torch.tensor(ids_of(explorer, text))
    return model.log_prob(ids[:, None], model.initial_state(1))[0][:, 0]


def test_scores_are_those_of_the_model(explorer):
    reading = explorer.read(TEXT, 0)
    targets = ids_of(explorer, TEXT)[1:]
    log_p = truth(explorer, TEXT)
    for row, target, score in zip(log_p, targets, reading.scores, strict=False):
        assert score.nll == pytest.approx(-row[target].item(), abs=1e-5)
        assert score.rank == 1 + (row > row[target]).sum()
        assert sum(score.responsibilities) == pytest.approx(1, abs=1e-5)
    assert len(reading.scores) == len(targets)


def test_components_of_a_lower_layer_read_its_states(runs):
    explorer = Explorer(open_model(runs["doc"], CPU))
    log_p = truth(explorer, TEXT)
    targets = ids_of(explorer, TEXT)[1:]
    expected = [-row[target].item() for row, target in zip(log_p, targets, strict=False)]
    assert losses(explorer.read(TEXT, 0)) == pytest.approx(expected, abs=1e-5)


def test_the_prediction_is_the_mixture_of_its_components(explorer):
    prediction = explorer.read(TEXT, len(TEXT) + 1).prediction
    row = truth(explorer, TEXT)[-1]
    assert prediction.actual is None
    assert [word.p for word in prediction.top] == pytest.approx(row.exp().topk(10).values.tolist(), abs=1e-5)
    assert all(sum(word.parts) == pytest.approx(word.p, abs=1e-5) for word in prediction.top)
    assert sum(component.weight for component in prediction.components) == pytest.approx(1, abs=1e-5)
    best = prediction.top[0]
    for component, part in zip(prediction.components, best.parts, strict=True):
        own = {word.word: word.p for word in component.top}
        assert best.word not in own or part == pytest.approx(component.weight * own[best.word], abs=1e-5)


@pytest.fixture
def tokens_read(explorer, monkeypatch):
    """The number of tokens in each pass of the model."""
    lengths = []
    backbone = explorer.model.model.backbone
    forward = backbone.forward
    monkeypatch.setattr(backbone, "forward", lambda ids, state: lengths.append(len(ids)) or forward(ids, state))
    return lengths


def test_a_text_that_grows_is_read_from_its_old_end(explorer, tokens_read):
    explorer.read("the cat sees", 0)
    tokens_read.clear()
    grown = explorer.read("the cat sees a dog", 0)
    assert sum(tokens_read) == 2
    whole = Explorer(explorer.model).read("the cat sees a dog", 0)
    assert losses(grown) == pytest.approx(losses(whole), abs=1e-5)


def test_a_change_is_read_from_the_last_state_before_it(explorer, tokens_read):
    text = "the cat sees a dog the old bird eats a cat the dog sees"
    explorer.read(text, len(text))
    changed = text.replace("eats a", "eats the")
    log_p = truth(explorer, changed)
    nll = [-row[i].item() for row, i in zip(log_p, ids_of(explorer, changed)[1:], strict=False)]
    tokens_read.clear()
    assert losses(explorer.read(changed, 0)) == pytest.approx(nll, abs=1e-5)
    assert sum(tokens_read) < len(nll)


def test_reading_can_stop_early_and_go_on(explorer):
    first = explorer.read(TEXT, len(TEXT), seconds=0)
    assert [score is not None for score in first.scores] == [True] * CHUNK + [False] * (10 - CHUNK)
    assert not first.complete
    assert first.prediction is None  # the cursor is not reached yet
    reading = explorer.read(TEXT, len(TEXT), seconds=0)
    assert reading.complete
    assert losses(reading) == pytest.approx(losses(Explorer(explorer.model).read(TEXT, 0)), abs=1e-5)
    assert reading.prediction.actual.word == "eats"


@pytest.mark.parametrize(
    ("cursor", "position"), [(0, 0), (2, 0), (3, 0), (4, 1), (7, 1), (8, 2), (12, 2), (18, 4), (19, 6), (999, 10)]
)
def test_the_cursor_selects_the_word_it_touches(explorer, cursor, position):
    assert explorer.read(TEXT + " ", cursor).prediction.position == position


def test_words_outside_the_vocabulary_are_read_as_unk(runs):
    explorer = Explorer(open_model(runs["unk"], CPU))
    reading = explorer.read("The elephant sees", 0)
    assert reading.words == ["the", "<unk>", "sees"]
    assert [token.known for token in reading.tokens] == [True, False, True]


def test_words_outside_a_vocabulary_without_unk_are_skipped(explorer):
    reading = explorer.read("the elephant sees", 0)
    assert reading.words == ["the", "", "sees"]
    assert reading.scores[1] is None
    assert reading.complete
    assert reading.scores[2].nll == pytest.approx(explorer.read("the sees", 0).scores[1].nll, abs=1e-5)


def test_an_end_of_line_that_touches_words_is_a_token_of_its_own(explorer):
    assert explorer.read("the cat<eos>the", 0).words == ["the", "cat", "<eos>", "the"]


def test_a_softmax_is_a_mixture_of_one(runs):
    reading = Explorer(open_model(runs["softmax"], CPU)).read(TEXT, 3)
    assert all(score.responsibilities == pytest.approx([1]) for score in reading.scores)
    assert len(reading.prediction.components) == 1


def test_characters_are_tokens(runs):
    explorer = Explorer(open_model(runs["char"], CPU))
    reading = explorer.read("a cat\n", 6)
    assert reading.words == ["a", " ", "c", "a", "t", "<eos>"]
    assert reading.prediction.position == 6
    nll = [-row[i].item() for row, i in zip(truth(explorer, "a cat\n"), ids_of(explorer, "a cat\n")[1:], strict=False)]
    assert losses(reading) == pytest.approx(nll, abs=1e-5)


def test_pieces_of_words_are_tokens(runs):
    text = "the catsee\nA dog"
    explorer = Explorer(open_model(runs["bpe"], CPU))
    reading = explorer.read(text, len(text))
    pieces = [text[token.start : token.end] for token in reading.tokens]
    assert "".join(pieces) == text
    assert [token.id for token in reading.tokens] == explorer.model.codec.encode(text).ids
    words = explorer.sample(text, 6, seed=2)
    grown = explorer.model.codec.encode(text + "".join(word.text for word in words)).ids
    assert grown[: len(pieces)] == [token.id for token in reading.tokens]


def test_a_character_of_several_tokens_is_written_once(runs):
    model = open_model(runs["bpe"], CPU)
    ids = model.codec.encode("the é cat").ids[len(model.codec.encode("the").ids) :]
    parts = added_texts(model, ids, "the")
    assert "".join(parts) == " é cat"
    assert not any("\ufffd" in part for part in parts)
    half = next(n for n, part in enumerate(parts) if "é" in part)
    assert "\ufffd" not in "".join(added_texts(model, ids[:half], "the"))  # the character is not complete yet


def test_temperature_zero_continues_like_generate(explorer):
    words = explorer.sample("the cat", 8, temperature=0)
    ids = torch.tensor(ids_of(explorer, "the cat"))
    expected = itertools.islice(generate(explorer.model.model, ids, temperature=0), 8)
    assert [word.word for word in words] == [explorer.model.words[i] for i in expected]


def test_a_sampled_text_reads_as_the_words_that_were_sampled(explorer):
    words = explorer.sample("the cat", 12, seed=5)
    text = "the cat" + "".join(word.text for word in words)
    reading = explorer.read(text, 0)
    assert reading.words[2:] == [word.word for word in words]
    assert [word.p for word in words] == pytest.approx(
        [torch.tensor(-score.nll).exp().item() for score in reading.scores[2:]], abs=1e-5
    )


def test_components_are_drawn_by_responsibility(explorer):
    drawn = [explorer.sample("the cat", 1, temperature=0, seed=seed)[0] for seed in range(300)]
    log_p = truth(explorer, "the cat")[-1]
    best = explorer.model.words[int(log_p.argmax())]
    word = next(word for word in explorer.read("the cat ", 8).prediction.top if word.word == best)
    share = torch.tensor(word.parts) / word.p
    counts = torch.bincount(torch.tensor([word.component for word in drawn]), minlength=3) / len(drawn)
    assert counts.tolist() == pytest.approx(share.tolist(), abs=0.1)


def test_the_same_seed_samples_the_same_text(explorer):
    first, again, other = (explorer.sample("the", 10, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_a_beam_finds_what_continue_by_beam_finds(explorer):
    found = explorer.search("the cat", 5, 3)
    model = explorer.model
    ids = torch.tensor(ids_of(explorer, "the cat"))
    expected = continue_by_beam(model.model, ids, eos=model.eos, beam_size=3, max_length=5)
    assert [[model.codec.index[word.word] for word in c.words] for c in found] == expected.to_lists()[0]
    assert [c.log_prob for c in found] == pytest.approx(expected.log_prob[:, 0].tolist(), abs=1e-4)


def test_without_line_ends_a_beam_finds_continuations_of_the_whole_length(explorer, monkeypatch):
    monkeypatch.setattr(explorer.model, "eos", None)
    assert {len(found.words) for found in explorer.search("the", 5, 3)} == {5}
