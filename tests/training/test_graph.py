"""CUDA graphs: the same losses as eager steps, new dropout masks in every replay, and skipping on the device."""

import pytest
import torch

from helpers import losses
from highrank.recipes import get_recipe
from highrank.recipes.settings import override
from highrank.training.graph import GraphedStep
from highrank.training.stages import Training

pytestmark = pytest.mark.gpu
SMALL = ["model.embed_dim=24", "model.hidden_sizes=40,32", "model.n_components=3", "train.batch_size=4", "train.lr=2",
         "train.bptt=10", "train.max_over_bptt=5", "train.window_multiple=5"]  # fmt: skip
NO_DROPOUT = [f"model.dropout_{name}=0" for name in ("words", "input", "hidden", "output", "latent")]


def make(corpus, settings, graphs):
    recipe = override(get_recipe("ptb-mos"), SMALL + settings)
    return Training(recipe, corpus, torch.device("cuda"), graphs=graphs)


@pytest.mark.parametrize("averaging", ["nt-asgd", "two-tailed"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "mixed"])
def test_graphs_and_eager_steps_agree_without_dropout(toy_corpus, precision, averaging):
    settings = [*NO_DROPOUT, "model.weight_drop=0", f"train.precision={precision}", f"train.averaging={averaging}"]
    graphed = make(toy_corpus, settings, graphs=True)
    eager = make(toy_corpus, settings, graphs=False)
    assert isinstance(graphed.step, GraphedStep)
    for start in (False, True):  # without and with averaging
        if start:
            graphed.optimizer.start_averaging()
            eager.optimizer.start_averaging()
        a, b = losses(graphed, 10), losses(eager, 10)
        assert a == pytest.approx(b, rel=1e-3 if precision != "float32" else 1e-5)
    for x, y in zip(graphed.optimizer.state().values(), eager.optimizer.state().values(), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-2, atol=2e-3)
    assert graphed.optimizer.n_averaged == eager.optimizer.n_averaged == 10


@pytest.mark.parametrize("options", ["train.adversarial=0.1", "model.lower_components=1 train.load_penalty=0.1"])
def test_graphs_and_eager_steps_agree_with_the_options_of_the_loss(toy_corpus, options):
    settings = [*NO_DROPOUT, "model.weight_drop=0", "train.precision=mixed", *options.split()]
    a, b = (losses(make(toy_corpus, settings, graphs), 10) for graphs in (True, False))
    assert a == pytest.approx(b, rel=1e-3)


@pytest.mark.parametrize(
    "settings",
    [
        [],
        NO_DROPOUT,
        [*NO_DROPOUT[1:], "model.weight_drop=0", "model.dropout_words=0.5"],
        [*NO_DROPOUT, "model.weight_drop=0", "train.input_noise=0.15"],
    ],
)
def test_every_replay_draws_new_dropout_masks(toy_corpus, settings):
    """All kinds of dropout, that of the recurrent weights alone, that of words alone, and noise."""
    training = make(toy_corpus, ["train.lr=0.0000001", *settings], graphs=True)
    window = next(training.minibatches())
    seen = set()
    for _ in range(5):
        training.task.carried.zero_()
        training.update(window)
        seen.add(training.read_totals())
    assert len(seen) == 5


def test_a_stage_without_averaging_captures_its_own_graphs(toy_corpus):
    """The graphs of the first stage add noise, which finetuning does not have."""
    settings = ["train.averaging=none", "train.input_noise=0.5", "train.lr=1e-30", "train.finetune_lr=none"]
    training = make(toy_corpus, [*NO_DROPOUT, "model.weight_drop=0", *settings], graphs=True)
    window = next(training.minibatches())
    seen = []
    for stage in range(2):
        for _ in range(3):
            training.task.carried.zero_()
            training.update(window)
            seen.append(training.read_totals())
        if stage == 0:
            training.end_epoch(3.0)
            training.start_finetuning()
    assert len({*seen[:3]}) == 3
    assert seen[3:] == pytest.approx([seen[3]] * 3, rel=1e-6)


def test_capturing_changes_nothing(toy_corpus):
    training = make(toy_corpus, [], graphs=True)
    before = [p.detach().clone() for p in training.model.parameters()]
    window = next(training.minibatches())
    generator = torch.cuda.get_rng_state()
    training.step._capture(window.tensors)
    assert torch.equal(torch.cuda.get_rng_state(), generator)
    assert all(torch.equal(a, p) for a, p in zip(before, training.model.parameters(), strict=True))
    assert training.step.read().tokens == 0
    assert not training.task.carried.any()


def test_dropout_does_not_depend_on_when_graphs_are_captured(toy_corpus):
    """After a resume, all graphs are captured again."""
    results = []
    for again in (False, True):
        training = make(toy_corpus, ["train.precision=float32"], graphs=True)
        torch.cuda.manual_seed(5)
        first = losses(training, 4)
        if again:
            training.step._graphs.clear()
            training.step._pool = None
        results.append(first + losses(training, 4))
    assert results[0] == pytest.approx(results[1], rel=1e-4)


def test_non_finite_steps_are_skipped_on_the_device(toy_corpus):
    training = make(toy_corpus, [], graphs=True)
    losses(training, 3)
    before = [p.detach().clone() for p in training.model.parameters()]
    training.task.hidden[0][0].fill_(torch.inf)
    losses(training, 1)
    assert training.state.skipped == 1
    assert all(torch.equal(a, p) for a, p in zip(before, training.model.parameters(), strict=True))
    losses(training, 2)
    assert training.state.skipped_in_a_row == 0
