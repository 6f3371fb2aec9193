"""A reading has the losses of the evaluation, and any step can be revisited exactly."""

import pytest
import torch

from highrank.analysis import reading as module
from highrank.analysis.reading import hidden_at, read
from highrank.evaluation.perplexity import evaluate
from highrank.models import build_model
from highrank.recipes import ModelSpec

IDS = torch.randint(20, (101,), generator=torch.Generator().manual_seed(3))


def model(head="mos"):
    built = build_model(ModelSpec(head, embed_dim=6, hidden_sizes=(9, 6), n_components=3, dropout_input=0.5), 20)
    for p in built.parameters():
        p.data.mul_(3)
    return built.double()


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch):
    monkeypatch.setattr(module, "WINDOW", 16)


def test_losses_match_the_evaluation():
    lm = model()
    reading = read(lm, IDS)
    assert reading.nll.shape == (100,)
    assert reading.nll.mean().item() == pytest.approx(evaluate(lm, IDS).nll, rel=1e-12)


@pytest.mark.parametrize("states", [1000, 3])
def test_a_revisited_step_has_the_loss_of_the_first_pass(states, monkeypatch):
    monkeypatch.setattr(module, "MAX_STATES", states)
    lm = model()
    reading = read(lm, IDS)
    steps = [0, 1, 15, 16, 17, 33, 34, 67, 98, 99, 99]
    revisited = dict(hidden_at(lm, IDS, reading, steps))  # in training mode: dropout must be turned off
    lm.eval()
    assert sorted(revisited) == sorted(set(steps))
    for step, g in revisited.items():
        nll = -lm.head.log_prob(g)[IDS[step + 1]]
        assert nll.item() == pytest.approx(reading.nll[step].item(), rel=1e-12)


def test_the_state_is_carried_through_the_stream():
    lm = model()
    with torch.no_grad():
        whole = lm.eval()(IDS[:-1, None], IDS[1:, None], lm.initial_state(1)).nll[:, 0]
    torch.testing.assert_close(read(lm, IDS).nll, whole, rtol=1e-12, atol=1e-12)


def test_a_long_stream_saves_few_states(monkeypatch):
    monkeypatch.setattr(module, "MAX_STATES", 3)
    assert len(read(model(), IDS).states) == 3


def test_a_single_token_raises():
    with pytest.raises(ValueError):
        read(model(), IDS[:1])
