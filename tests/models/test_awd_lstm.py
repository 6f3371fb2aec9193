import pytest
import torch
from torch import nn

from highrank.models import AWDLSTM
from highrank.models.awd_lstm import WeightDropLSTM

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


DROPOUTS = ["dropout_words", "dropout_input", "dropout_hidden", "dropout_output", "weight_drop"]


@pytest.mark.parametrize("name", [*DROPOUTS, "input_noise"])
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
    assert torch.equal(*(model(words, model.initial_state(3)).g for _ in range(2)))  # a single layer


@pytest.mark.parametrize(("name", "layer"), [("dropout_input", 0), ("dropout_hidden", 1)])
def test_dropout_shares_one_mask_over_time(name, layer):
    """Each column has its own mask, the same at every time step."""
    model, seen = AWDLSTM(V, 16, (16, 5), **{name: 0.5}), []
    model.layers[layer].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0] == 0))
    model(torch.randint(V, (7, 3)), model.initial_state(3))
    (dropped,) = seen
    assert torch.equal(dropped, dropped[:1].expand_as(dropped))
    assert not torch.equal(dropped[0, 0], dropped[0, 1])


def test_a_dropped_word_is_dropped_at_all_its_places():
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


def test_lower_layers_follow_the_last_one_with_the_dropout_between_layers():
    model, words = AWDLSTM(V, 6, (16, 8, 5), dropout_hidden=0.5, lower_outputs=1), torch.randint(V, (7, 3))
    seen = []
    model.layers[2].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    hidden = model(words, model.initial_state(3))
    assert model.out_features == hidden.g.shape[-1] == 5 + 8
    assert torch.equal(hidden.g[..., :5], hidden.raw)
    assert torch.equal(hidden.g[..., 5:], seen[0])


def test_initial_weights_follow_the_released_code():
    model = AWDLSTM(V, 6, (16,))
    assert -0.1 <= model.embedding.min() < -0.09
    assert 0.09 < model.embedding.max() <= 0.1
    for name, p in model.layers[0].named_parameters():
        assert -0.25 <= p.min() < -0.2, name  # nn.LSTM's bound: 1 / sqrt(16)
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
    assert not c.any()  # h and c do not share memory


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"dropout_input": 1.0}, "dropout_input"),
        ({"weight_drop": -0.1}, "weight_drop"),
        ({"hidden_sizes": (8, 0)}, r"hidden_sizes\[1\]"),
        ({"hidden_sizes": ()}, "layers"),
    ],
)
def test_an_impossible_argument_is_named(change, name):
    with pytest.raises(ValueError, match=name):
        AWDLSTM(V, **{"embed_dim": 6, "hidden_sizes": (8, 5)} | change)
