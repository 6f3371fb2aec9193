import itertools
import math

import pytest
import torch
from torch import Tensor, nn

from highrank.evaluation.beam import beam_search, sample
from highrank.models import build_model
from highrank.models.seq2seq import build_seq2seq
from highrank.recipes import ModelSpec
from highrank.recipes.dialog import Seq2SeqSpec

EOS = 0
V = 4


class Markov(nn.Module):
    """A model whose next word depends on the last one only; its state is the number of words read."""

    def __init__(self, probabilities) -> None:
        super().__init__()
        self.log_p = torch.tensor(probabilities, dtype=torch.float64).log()
        self.steps = 0
        self.eval()

    def step(self, words: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        self.steps += 1
        return self.log_p[words], state + 1

    def select_rows(self, state: Tensor, rows: Tensor) -> Tensor:
        return state[rows]


def language_model():
    model = build_model(ModelSpec("mos", embed_dim=5, hidden_sizes=(7, 6), n_components=3), V).double().eval()
    nn.init.normal_(model.backbone.embedding)  # far from uniform
    words = torch.randint(V, (3, 2))
    _, state = model.log_prob(words[:-1], model.initial_state(2))
    return model, words[-1], state


def seq2seq_model(extra=0):
    torch.manual_seed(0)
    spec = Seq2SeqSpec("mos", embed_dim=5, encoder_size=4, decoder_size=7, attention_size=6, n_components=3)
    model = build_seq2seq(spec, V).double().eval()
    nn.init.normal_(model.backbone.embedding)
    context = torch.randint(V, (5 + extra, 2), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(5 + extra)[:, None] < torch.tensor([5, 3])
    return model, torch.tensor([1, 1]), model.encode(context, mask)


def enumerate_all(model, words, state, max_length, length_penalty=0.0, forbidden=()):
    """Return all hypotheses of every context as (score, log-probability, words), best first."""
    results = []
    for b in range(len(words)):
        own_state = model.select_rows(state, torch.arange(len(words)))
        found = []
        allowed = [v for v in range(V) if v != EOS and v not in forbidden]
        for length in range(max_length + 1):
            for response in itertools.product(allowed, repeat=length):
                tokens = [*response, EOS][:max_length]
                current, last, log_prob = own_state, words, 0.0
                for token in tokens:
                    log_p, current = model.step(last, current)
                    log_prob += log_p[b, token].item()
                    last = torch.full_like(words, token)
                found.append((log_prob / len(tokens) ** length_penalty, log_prob, list(response)))
        results.append(sorted(found, reverse=True))
    return results


def assert_same(hypotheses, expected, n):
    lists = hypotheses.to_lists()
    for b, own in enumerate(expected):
        assert lists[b] == [words for _, _, words in own[:n]]
        for i, (score, log_prob, words) in enumerate(own[:n]):
            assert hypotheses.score[i, b].item() == pytest.approx(score, abs=1e-5)
            assert hypotheses.log_prob[i, b].item() == pytest.approx(log_prob, abs=1e-5)
            assert hypotheses.lengths[i, b] == len(words)


@pytest.mark.parametrize("make", [language_model, seq2seq_model])
@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_a_wide_beam_equals_brute_force(make, length_penalty):
    model, words, state = make()
    with torch.no_grad():
        expected = enumerate_all(model, words, state, 4, length_penalty)
    found = beam_search(
        model, words, state, eos=EOS, beam_size=81, n_best=121, max_length=4, length_penalty=length_penalty
    )
    # 1 + 3 + 9 + 27 hypotheses end with <eos>, 81 are cut: all outcomes there are.
    assert_same(found, expected, n=121)
    torch.testing.assert_close(found.log_prob.exp().sum(0), torch.ones(2, dtype=found.log_prob.dtype))


def test_forbidden_words_appear_in_no_hypothesis():
    model, words, state = seq2seq_model()
    with torch.no_grad():
        expected = enumerate_all(model, words, state, 3, forbidden=[2])
    assert_same(
        beam_search(model, words, state, eos=EOS, beam_size=8, n_best=9, max_length=3, forbidden=[2]), expected, n=9
    )


def test_padding_never_changes_a_beam():
    plain = beam_search(*seq2seq_model(), eos=EOS, beam_size=3, max_length=6)
    padded = beam_search(*seq2seq_model(extra=4), eos=EOS, beam_size=3, max_length=6)
    assert plain.to_lists() == padded.to_lists()
    torch.testing.assert_close(plain.log_prob, padded.log_prob)


def test_contexts_do_not_disturb_each_other():
    model, words, state = language_model()
    both = beam_search(model, words, state, eos=EOS, beam_size=2, max_length=5).to_lists()
    for b in range(2):
        own = [(h[b : b + 1], c[b : b + 1]) for h, c in state]
        assert beam_search(model, words[b : b + 1], own, eos=EOS, beam_size=2, max_length=5).to_lists() == [both[b]]


def test_without_an_end_a_wide_beam_finds_the_likeliest_sequences_of_the_whole_length():
    model = Markov([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [0.25, 0.5, 0.15, 0.1], [0.7, 0.1, 0.1, 0.1]])
    found = beam_search(model, torch.tensor([1]), torch.zeros(1), eos=None, beam_size=64, n_best=64, max_length=3)
    assert sorted(found.to_lists()[0]) == [list(words) for words in itertools.product(range(4), repeat=3)]
    assert found.log_prob[:, 0].exp().sum().item() == pytest.approx(1)
    assert found.to_lists()[0][0] == [0, 3, 0]  # 0.4 * 0.4 * 0.7


def test_a_beam_of_one_is_greedy():
    # From word 1 greedy search takes word 2 (0.6) and ends: 0.6 * 0.4. Word 3 would have led to 0.4 * 0.9.
    model = Markov([[1, 0, 0, 0], [0, 0, 0.6, 0.4], [0.4, 0, 0.3, 0.3], [0.9, 0.1, 0, 0]])
    state = torch.zeros(1)
    greedy = beam_search(model, torch.tensor([1]), state, eos=EOS, beam_size=1, n_best=1)
    assert greedy.to_lists() == [[[2]]]
    assert greedy.log_prob.item() == pytest.approx(math.log(0.24))
    wider = beam_search(model, torch.tensor([1]), state, eos=EOS, beam_size=2, n_best=1)
    assert wider.to_lists() == [[[3]]]


def test_the_search_stops_once_nothing_better_can_come():
    model = Markov([[1, 0, 0, 0], [0.9, 0.1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]])
    found = beam_search(model, torch.tensor([1]), torch.zeros(1), eos=EOS, beam_size=4, n_best=2, max_length=100)
    assert found.to_lists() == [[[], [1]]]
    assert model.steps == 2


def test_fewer_hypotheses_than_wanted_are_marked():
    model = Markov([[1, 0, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0], [1, 0, 0, 0]])
    found = beam_search(model, torch.tensor([1]), torch.zeros(1), eos=EOS, beam_size=4, n_best=3)
    assert found.to_lists() == [[[2]]]
    assert found.score[:, 0].tolist() == [0, -math.inf, -math.inf]


def test_ties_are_all_kept_once():
    model = Markov([[0.25] * 4] * 4)
    found = beam_search(model, torch.tensor([1]), torch.zeros(1), eos=EOS, beam_size=3, n_best=4, max_length=2)
    assert sorted(found.to_lists()[0]) == [[], [1], [2], [3]]


def test_a_length_penalty_prefers_longer_hypotheses():
    # [] has probability 0.5; [1, 1, ...] loses 0.5 once and nothing after that.
    model = Markov([[1, 0, 0, 0], [0.001, 0.999, 0, 0], [0.5, 0.5, 0, 0], [1, 0, 0, 0]])
    options = {"eos": EOS, "beam_size": 2, "n_best": 1, "max_length": 5}
    assert beam_search(model, torch.tensor([2]), torch.zeros(1), **options).to_lists() == [[[]]]
    found = beam_search(model, torch.tensor([2]), torch.zeros(1), length_penalty=1.0, **options)
    assert found.to_lists() == [[[1, 1, 1, 1, 1]]]


@pytest.mark.parametrize("decode", [beam_search, sample])
def test_a_model_in_training_mode_is_an_error(decode):
    model, words, state = language_model()
    with pytest.raises(ValueError):
        decode(model.train(), words, state, eos=EOS)


def test_samples_follow_the_models_distribution():
    model, words, state = seq2seq_model()
    with torch.no_grad():
        expected = enumerate_all(model, words, state, 2)
    generator = torch.Generator().manual_seed(0)
    drawn = sample(model, words, state, eos=EOS, n_samples=20_000, max_length=2, generator=generator)
    for b, own in enumerate(expected):
        counts = {tuple(response): 0 for _, _, response in own}
        log_probs = {tuple(response): log_prob for _, log_prob, response in own}
        for response, log_prob in zip(drawn.to_lists()[b], drawn.log_prob[:, b].tolist(), strict=True):
            counts[tuple(response)] += 1
            assert log_prob == pytest.approx(log_probs[tuple(response)], abs=1e-5)
        for response, count in counts.items():
            p = math.exp(log_probs[response])
            assert count / 20_000 == pytest.approx(p, abs=5 * math.sqrt(p * (1 - p) / 20_000))


def test_samples_repeat_with_a_seed_and_sharpen_with_a_low_temperature():
    model, words, state = seq2seq_model()

    def draw(seed, temperature=1.0):
        generator = torch.Generator().manual_seed(seed)
        options = {"n_samples": 8, "max_length": 6, "temperature": temperature, "generator": generator}
        return sample(model, words, state, eos=EOS, **options).to_lists()

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)
    assert all(len(set(map(tuple, own))) == 1 for own in draw(1, temperature=1e-4))


def test_samples_never_contain_forbidden_words():
    model, words, state = seq2seq_model()
    options = {"n_samples": 200, "max_length": 4, "temperature": 5.0, "generator": torch.Generator().manual_seed(0)}
    drawn = sample(model, words, state, eos=EOS, **options)
    word = max(word for own in drawn.to_lists() for hypothesis in own for word in hypothesis)
    allowed = sample(model, words, state, eos=EOS, forbidden=(word,), **options)
    assert all(word not in hypothesis for own in allowed.to_lists() for hypothesis in own)
