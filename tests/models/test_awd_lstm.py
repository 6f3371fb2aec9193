import pytest
import torch
from torch import nn

from highrank import MoCHead, MoSHead, SoftmaxHead
from highrank.models import AWDLSTM, LanguageModel
from highrank.models.awd_lstm import WeightDropLSTM
from highrank.recipes import RECIPES
from highrank.runs.folder import build_model

V = 30


def test_weight_drop_changes_every_forward_pass_in_training_and_never_in_evaluation():
    layer = WeightDropLSTM(6, 8, weight_drop=0.5)
    x, state = torch.randn(5, 2, 6), (torch.zeros(2, 8), torch.zeros(2, 8))
    raw = layer.weight_hh.detach().clone()
    trained = [layer(x, state)[0] for _ in range(4)]
    for i in range(4):
        for j in range(i):
            assert not torch.equal(trained[i], trained[j])
    torch.testing.assert_close(trained[0][0], trained[1][0])  # from a zero state the first step uses no recurrence
    layer.eval()
    evaluated = [layer(x, state)[0] for _ in range(3)]
    assert torch.equal(evaluated[0], evaluated[1])
    assert torch.equal(evaluated[0], evaluated[2])
    assert torch.equal(layer.weight_hh, raw)  # masking never touches the parameter

    plain = nn.LSTM(6, 8)
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        getattr(plain, f"{name}_l0").data.copy_(getattr(layer, name))
    torch.testing.assert_close(evaluated[0], plain(x)[0])


def test_weight_drop_masks_the_recurrent_gradient():
    layer = WeightDropLSTM(6, 8, weight_drop=0.5)
    layer(torch.randn(5, 2, 6), (torch.zeros(2, 8), torch.zeros(2, 8)))[0].sum().backward()
    share = (layer.weight_hh.grad == 0).float().mean().item()
    assert 0.3 < share < 0.7
    assert (layer.weight_ih.grad != 0).all()


def test_without_dropout_training_and_evaluation_agree():
    model = AWDLSTM(V, 6, (8, 5))
    words = torch.randint(V, (7, 3))
    g, raw, _ = model(words, model.initial_state(3))
    torch.testing.assert_close(g, raw)
    torch.testing.assert_close(g, model.eval()(words, model.initial_state(3)).g)


@pytest.mark.parametrize("name", ["dropout_words", "dropout_input", "dropout_hidden", "dropout_output", "weight_drop"])
def test_each_dropout_acts_in_training_only(name):
    model = AWDLSTM(V, 6, (8, 5), **{name: 0.5})
    words = torch.randint(V, (7, 3))

    def forward():
        return model(words, model.initial_state(3)).g

    assert not torch.equal(forward(), forward())
    model.eval()
    assert torch.equal(forward(), forward())


def test_hidden_dropout_is_between_layers():
    model, words = AWDLSTM(V, 6, (8,), dropout_hidden=0.5), torch.randint(V, (7, 3))
    assert torch.equal(*(model(words, model.initial_state(3)).g for _ in range(2)))  # one layer: nothing between


@pytest.mark.parametrize(("name", "layer"), [("dropout_input", 0), ("dropout_hidden", 1)])
def test_dropout_is_variational(name, layer):
    """One mask for all time steps, another for every column."""
    model, seen = AWDLSTM(V, 16, (16, 5), **{name: 0.5}), []
    model.layers[layer].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0] == 0))
    model(torch.randint(V, (7, 3)), model.initial_state(3))
    (dropped,) = seen
    assert torch.equal(dropped, dropped[:1].expand_as(dropped))
    assert not torch.equal(dropped[0, 0], dropped[0, 1])


def test_a_dropped_word_is_dropped_everywhere():
    model = AWDLSTM(V, 6, (8,), dropout_words=0.5)
    seen = set()
    for _ in range(20):
        g = model(torch.full((5, 4), 3), model.initial_state(4)).g
        assert torch.equal(g, g[:, :1].expand_as(g))
        seen.add(g.sum().item())
    assert len(seen) == 2  # with the word, or without it


def test_output_dropout_leaves_the_raw_states_alone():
    model, words = AWDLSTM(V, 6, (8, 5), dropout_output=0.5), torch.randint(V, (7, 3))
    g, raw, _ = model(words, model.initial_state(3))
    dropped = g == 0
    assert dropped.any()
    assert torch.equal(dropped, dropped[:1].expand_as(dropped))  # the same features at every time step
    torch.testing.assert_close(g[~dropped], 2 * raw[~dropped])
    assert torch.equal(raw, model.eval()(words, model.initial_state(3)).g)


def test_models_begin_as_in_the_released_code():
    model = AWDLSTM(V, 6, (16,))
    assert -0.1 <= model.embedding.min() < -0.09
    assert 0.09 < model.embedding.max() <= 0.1
    for name, p in model.layers[0].named_parameters():
        assert -0.25 <= p.min() < -0.2, name  # torch's own: 1 / sqrt(16)
        assert 0.2 < p.max() <= 0.25, name


def test_state_is_passed_in_and_returned():
    model = AWDLSTM(V, 6, (8, 5)).eval()
    words = torch.randint(V, (9, 3))
    whole = model(words, model.initial_state(3)).g
    first = model(words[:4], model.initial_state(3))
    second = model(words[4:], first.state)
    torch.testing.assert_close(torch.cat([first.g, second.g]), whole)
    h, c = model.initial_state(3)[0]
    h.fill_(1.0)
    assert not c.any()  # each may be written to


@pytest.mark.parametrize(
    ("recipe", "vocab_size", "expected"),
    [
        ("ptb-mos", 10_000, 21_500_620),  # the released models' counts
        ("ptb-moc", 10_000, 21_500_620),
        ("ptb-mos-plus", 10_000, 21_500_620),
        ("wt2-mos", 33_278, 34_909_528),
        ("wt2-moc", 33_278, 34_909_528),
        ("wt2-mos-plus", 33_278, 34_909_528),
        ("ptb-softmax", 10_000, 24_221_600),  # what awd-lstm-lm prints
        ("wt2-softmax", 33_278, 33_556_078),
        ("ptb-softmax-mos-hparams", 10_000, 16_350_800),  # ours: the paper does not tell its sizes
        ("wt2-softmax-mos-hparams", 33_278, 29_027_478),
    ],
)
def test_parameter_counts(recipe, vocab_size, expected):
    with torch.device("meta"):
        assert build_model(RECIPES[recipe], vocab_size).n_parameters() == expected


def test_the_small_recipes_have_nearly_equal_budgets():
    counts = [build_model(r, 2037).n_parameters() for r in RECIPES.values() if r.data.corpus == "pydoc"]
    assert max(counts) / min(counts) < 1.0025


@pytest.mark.parametrize("head", ["softmax", "moc", "mos"])
def test_language_model_scores_what_it_predicts(head):
    model = LanguageModel(V, head=head, embed_dim=6, hidden_sizes=(8, 6), n_components=3).eval()
    words, targets = torch.randint(V, (7, 3)), torch.randint(V, (7, 3))
    nll = model(words, targets, model.initial_state(3)).nll
    log_p, _ = model.log_prob(words, model.initial_state(3))
    torch.testing.assert_close(nll, -log_p.gather(-1, targets[..., None])[..., 0])
    assert type(model.head) is {"softmax": SoftmaxHead, "moc": MoCHead, "mos": MoSHead}[head]
    first, state = model.log_prob(words[:4], model.initial_state(3))
    torch.testing.assert_close(torch.cat([first, model.log_prob(words[4:], state)[0]]), log_p)


def test_every_dropout_gets_where_it_belongs():
    names = ("dropout_words", "dropout_input", "dropout_hidden", "dropout_output")
    shares = {name: 0.1 * i for i, name in enumerate((*names, "dropout_latent", "weight_drop"), start=1)}
    model = LanguageModel(V, head="mos", embed_dim=6, hidden_sizes=(8, 5), n_components=3, **shares)
    assert all(getattr(model.backbone, name) == shares[name] for name in names)
    assert model.head.mixture.dropout == shares["dropout_latent"]
    assert [layer.weight_drop for layer in model.backbone.layers] == [shares["weight_drop"]] * 2


def test_tying():
    tied = LanguageModel(V, head="mos", embed_dim=6, hidden_sizes=(8, 5), n_components=3)
    assert tied.head.weight is tied.backbone.embedding
    untied = LanguageModel(V, head="mos", embed_dim=6, hidden_sizes=(8, 5), n_components=3, tied=False)
    assert untied.n_parameters() == tied.n_parameters() + V * 6
    with pytest.raises(ValueError, match="last hidden size"):
        LanguageModel(V, head="softmax", embed_dim=6, hidden_sizes=(8, 5))
    LanguageModel(V, head="softmax", embed_dim=6, hidden_sizes=(8, 5), tied=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dropout_input": 1.0}, "dropout_input must be at least 0 and below 1, got 1.0"),
        ({"weight_drop": -0.1}, "weight_drop must be at least 0"),
        ({"dropout_latent": 1.0}, "dropout must be at least 0 and below 1"),
        ({"hidden_sizes": (8, 0)}, r"hidden_sizes\[1\] must be at least 1, got 0"),
        ({"hidden_sizes": ()}, "layers must be at least 1"),
        ({"head": "mixture"}, "unknown head 'mixture': choose softmax, moc or mos"),
    ],
)
def test_impossible_models_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        LanguageModel(V, **{"head": "mos", "embed_dim": 6, "hidden_sizes": (8, 5), "n_components": 3} | change)
