import pytest
import torch

from highrank import MoCHead, MoSHead, SoftmaxHead
from highrank.models import AWDLSTM, LanguageModel, build_model
from highrank.recipes import RECIPES, ModelSpec

V = 30
MOS = {"head": "mos", "embed_dim": 6, "hidden_sizes": (8, 5), "n_components": 3}


@pytest.mark.parametrize(
    ("recipe", "vocab_size", "expected"),
    [
        ("ptb-mos", 10_000, 21_500_620),  # the released models' counts
        ("ptb-moc", 10_000, 21_500_620),
        ("ptb-mos-plus", 10_000, 21_500_620),
        ("wt2-mos", 33_278, 34_909_528),
        ("wt2-moc", 33_278, 34_909_528),
        ("wt2-mos-plus", 33_278, 34_909_528),
        ("ptb-doc", 10_000, 22_849_120),
        ("wt2-doc", 33_278, 36_639_278),
        ("ptb-softmax", 10_000, 24_221_600),  # as awd-lstm-lm prints
        ("wt2-softmax", 33_278, 33_556_078),
        ("1b-softmax", 100_000, 119_293_600),  # the paper prints 119M and 113M
        ("1b-mos", 100_000, 112_850_364),
        ("text8-softmax", 27, 8_424_475),
        ("text8-mos7", 27, 8_448_517),
        ("text8-mos7-equal", 27, 8_474_277),  # the paper prints 8.45M, which its sizes do not give
        ("text8-mos10", 27, 8_432_711),
        ("text8-mos10-equal", 27, 8_434_394),
        ("ptb-softmax-mos-hparams", 10_000, 16_350_800),  # ours: the paper does not print its sizes
        ("wt2-softmax-mos-hparams", 33_278, 29_027_478),
    ],
)
def test_recipes_have_the_published_parameter_counts(recipe, vocab_size, expected):
    with torch.device("meta"):
        assert build_model(RECIPES[recipe].model, vocab_size).n_parameters() == expected


def test_the_small_recipes_have_nearly_equal_budgets():
    counts = [build_model(r.model, 2037).n_parameters() for r in RECIPES.values() if r.data.corpus == "pydoc"]
    assert max(counts) / min(counts) < 1.0025


@pytest.mark.parametrize(("name", "kind"), [("softmax", SoftmaxHead), ("moc", MoCHead), ("mos", MoSHead)])
def test_the_spec_names_the_head(name, kind):
    model = build_model(ModelSpec(head=name, embed_dim=6, hidden_sizes=(8, 6), n_components=3), V)
    assert type(model.head) is kind


@pytest.mark.parametrize("head", ["softmax", "moc", "mos"])
def test_the_loss_is_minus_the_log_probability_of_the_target(head):
    model = build_model(ModelSpec(head=head, embed_dim=6, hidden_sizes=(8, 6), n_components=3), V).eval()
    words, targets = torch.randint(V, (7, 3)), torch.randint(V, (7, 3))
    nll = model(words, targets, model.initial_state(3)).nll
    log_p, _ = model.log_prob(words, model.initial_state(3))
    torch.testing.assert_close(nll, -log_p.gather(-1, targets[..., None])[..., 0])


def test_components_of_a_lower_layer_read_that_layer():
    spec = ModelSpec(head="mos", embed_dim=6, hidden_sizes=(8, 7, 5), n_components=5, lower_components=(2,))
    model = build_model(spec, V).eval()
    assert (model.head.layer_sizes, model.head.latent.out_features) == ([5, 7], 3 * 6)
    words, targets = torch.randint(V, (7, 3)), torch.randint(V, (7, 3))
    nll = model(words, targets, model.initial_state(3)).nll
    log_p, _ = model.log_prob(words, model.initial_state(3))
    torch.testing.assert_close(nll, -log_p.gather(-1, targets[..., None])[..., 0])
    nll.mean().backward()
    assert all(p.grad.any() for p in model.parameters())


def test_log_prob_continues_from_the_state_it_returned():
    model = build_model(ModelSpec(**MOS), V).eval()
    words = torch.randint(V, (7, 3))
    whole, _ = model.log_prob(words, model.initial_state(3))
    first, state = model.log_prob(words[:4], model.initial_state(3))
    torch.testing.assert_close(torch.cat([first, model.log_prob(words[4:], state)[0]]), whole)


def test_every_dropout_of_the_spec_reaches_its_place():
    names = ("dropout_words", "dropout_input", "dropout_hidden", "dropout_output")
    rates = {name: 0.1 * i for i, name in enumerate((*names, "dropout_latent", "weight_drop"), start=1)}
    model = build_model(ModelSpec(**MOS, **rates), V)
    assert all(getattr(model.backbone, name) == rates[name] for name in names)
    assert model.head.dropout == rates["dropout_latent"]
    assert [layer.weight_drop for layer in model.backbone.layers] == [rates["weight_drop"]] * 2


def test_a_shared_latent_mask_drops_the_same_features_in_all_components():
    spec = ModelSpec(**MOS | {"embed_dim": 40}, dropout_latent=0.5, shared_latent_mask=True)
    head = build_model(spec, V).head
    dropped = head.components(torch.randn(7, 3, head.in_features))[1] == 0  # (T, B, K, D)
    assert 0.3 < dropped.float().mean() < 0.7
    assert torch.equal(dropped, dropped[:1, :, :1].expand_as(dropped))
    assert not torch.equal(dropped[0, 0], dropped[0, 1])


def test_recipes_bound_context_vectors_by_1_as_the_paper_does():
    model = build_model(ModelSpec(**MOS), V)
    g = torch.randn(5, model.head.in_features)
    expected = torch.tanh(model.head.latent(g)).unflatten(-1, (3, 6))
    assert torch.equal(model.head.components(g)[1], expected)
    assert "head.scale" not in model.state_dict()


def test_embeddings_are_tied_unless_the_spec_unties_them():
    tied = build_model(ModelSpec(**MOS), V)
    assert tied.head.weight is tied.backbone.embedding
    untied = build_model(ModelSpec(**MOS, tied=False), V)
    assert untied.n_parameters() == tied.n_parameters() + V * 6


def test_a_tied_softmax_needs_a_last_layer_of_the_embedding_size():
    with pytest.raises(ValueError, match="tied weight"):
        build_model(ModelSpec(head="softmax", embed_dim=6, hidden_sizes=(8, 5)), V)
    build_model(ModelSpec(head="softmax", embed_dim=6, hidden_sizes=(8, 5), tied=False), V)


def test_a_head_must_fit_the_backbone():
    with pytest.raises(ValueError, match="in_features"):
        LanguageModel(AWDLSTM(V, 6, (8, 5)), SoftmaxHead(6, V))


def test_an_unknown_head_is_named():
    with pytest.raises(ValueError, match="mixture"):
        build_model(ModelSpec(**MOS | {"head": "mixture"}), V)
