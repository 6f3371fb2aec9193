"""The interface that all heads share, and the difference between them: the rank of their log-probabilities."""

import inspect

import pytest
import torch
from torch import nn

from highrank import MoCHead, MoSHead, SoftmaxHead
from highrank.analysis.rank import numerical_rank
from highrank.heads import Head

IN, D, V, K = 12, 6, 40, 4


def make(name: str, **options):
    if name == "softmax":
        return SoftmaxHead(D, V, **options), D
    return {"moc": MoCHead, "mos": MoSHead}[name](IN, D, V, K, **options), IN


HEADS = ["softmax", "moc", "mos"]


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("leading", [(), (5,), (3, 4), (2, 3, 4)], ids=str)
def test_nll_is_minus_log_prob_for_any_leading_shape(name, leading):
    head, width = make(name)
    head.bias.data.normal_()
    g, targets = torch.randn(*leading, width), torch.randint(V, leading)
    nll, log_p = head.nll(g, targets), head.log_prob(g)
    assert nll.shape == leading
    assert log_p.shape == (*leading, V)
    assert nll.dtype == torch.float32
    torch.testing.assert_close(nll, -log_p.gather(-1, targets[..., None])[..., 0])
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(leading))


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_a_head_works_in_any_float_dtype(name, dtype):
    head, width = make(name)
    head = head.to(dtype)
    g, targets = torch.randn(7, width, dtype=dtype, requires_grad=True), torch.randint(V, (7,))
    nll = head.nll(g, targets)
    nll.mean().backward()
    log_p = head.log_prob(g)
    assert nll.dtype == log_p.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(7, dtype=log_p.dtype))
    assert g.grad.dtype == dtype
    assert all(torch.isfinite(p.grad).all() for p in head.parameters())


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_hidden_states_may_have_another_dtype_than_the_head(name, dtype):
    head, width = make(name)
    g, targets = torch.randn(7, width, dtype=dtype, requires_grad=True), torch.randint(V, (7,))
    head.nll(g, targets).mean().backward()
    assert g.grad.dtype == dtype
    assert head.weight.grad.dtype == torch.float32
    torch.testing.assert_close(
        head.nll(g, targets).float(), -head.log_prob(g).gather(-1, targets[:, None])[:, 0].float(), rtol=1e-2, atol=1e-2
    )


@pytest.mark.parametrize("name", HEADS)
def test_gradients_equal_those_of_the_reference(name):
    head, width = make(name, impl="chunked")
    slow, _ = make(name, impl="reference")
    slow.load_state_dict(head.state_dict())
    g, targets = torch.randn(9, width), torch.randint(V, (9,))
    for h in (head, slow):
        h.double().nll(g.double(), targets).mean().backward()
    for (key, a), b in zip(head.named_parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-10, atol=1e-12, msg=lambda m, key=key: f"{key}: {m}")


@pytest.mark.parametrize("name", HEADS)
def test_tied_weight_is_shared(name):
    embedding = nn.Parameter(torch.randn(V, D))
    head, _ = make(name, weight=embedding)
    assert head.weight is embedding


@pytest.mark.parametrize("name", HEADS)
def test_a_tied_weight_of_the_wrong_shape_is_named(name):
    with pytest.raises(ValueError, match="weight"):
        make(name, weight=nn.Parameter(torch.randn(V, D + 1)))


@pytest.mark.parametrize("name", HEADS)
def test_bias_is_optional(name):
    assert make(name, bias=False)[0].bias is None
    assert make(name)[0].bias.shape == (V,)


@pytest.mark.parametrize("name", HEADS)
def test_initial_weights_follow_the_released_code(name):
    head, _ = make(name)
    assert not head.bias.any()
    assert -0.1 <= head.weight.min() < -0.09
    assert 0.09 < head.weight.max() <= 0.1


@pytest.mark.parametrize("name", HEADS)
def test_adversarial_margins_act_in_training_only(name):
    head, width = make(name)
    g, targets = torch.randn(7, 3, width), torch.randint(V, (7, 3))
    plain = head.nll(g, targets)
    head.adversarial = 0.1
    attacked = head.nll(g, targets)
    assert (attacked >= plain).all()
    assert (attacked > plain).any()
    assert torch.equal(head.eval().nll(g, targets), plain)


@pytest.mark.parametrize("name", ["moc", "mos"])
def test_components_are_mixture_weights_and_context_vectors(name):
    head, width = make(name)
    pi, h = head.components(torch.randn(3, 5, width))
    assert pi.shape == (3, 5, K)
    assert h.shape == (3, 5, K, D)
    torch.testing.assert_close(pi.sum(-1), torch.ones(3, 5))
    assert h.abs().max() <= head.scale
    assert head.prior.bias is None
    assert head.latent.bias is not None


@pytest.mark.parametrize("options", [{}, {"embed_dim": 3}])
def test_a_softmax_has_one_component(options):
    head = SoftmaxHead(D, V, **options)
    g = torch.randn(3, 5, D)
    pi, h = head.components(g)
    assert torch.equal(pi, torch.ones(3, 5, 1))
    logits = (h @ head.weight.T + head.bias)[..., 0, :]
    torch.testing.assert_close(logits.log_softmax(-1), head.log_prob(g))


def test_a_new_head_needs_its_parameters_and_its_softmaxes():
    class TwoLinear(Head):
        def __init__(self):
            super().__init__()
            self.vocab_size = V
            self.weight = torch.nn.Parameter(torch.randn(V, D))
            self.bias = None

        def softmaxes(self, g):
            return g.new_full((*g.shape[:-1], 2), 0.5).log(), torch.stack([g, -g], dim=-2)

    g, y = torch.randn(7, D), torch.randint(V, (7,))
    head = TwoLinear()
    pi, h = head.components(g)
    expected = (pi.unsqueeze(-1) * (h @ head.weight.T).softmax(-1)).sum(dim=-2)
    assert torch.allclose(head.nll(g, y), -expected[torch.arange(7), y].log(), atol=1e-5)


def test_mos_mixes_probabilities_and_moc_contexts():
    """Sections 2.4 and 2.5 of the paper, computed from the parameters in float64."""
    mos, moc = make("mos")[0].double(), make("moc")[0].double()
    mos.bias.data.normal_()
    moc.load_state_dict(mos.state_dict())
    g, prior, latent = torch.randn(8, IN).double(), mos.prior, mos.latent
    pi = torch.softmax(g @ prior.weight.T, -1)
    h = mos.scale * torch.tanh(g @ latent.weight.T + latent.bias).view(8, K, D)
    for mine, theirs in zip(mos.components(g), (pi, h), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=0)
    mixed = (pi[..., None] * torch.softmax(h @ mos.weight.T + mos.bias, -1)).sum(1)
    torch.testing.assert_close(mos.log_prob(g), mixed.log(), rtol=1e-12, atol=0)
    context = (pi[..., None] * h).sum(1)
    expected = torch.log_softmax(context @ moc.weight.T + moc.bias, -1)
    torch.testing.assert_close(moc.log_prob(g), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", ["moc", "mos"])
def test_latent_dropout_shares_its_mask_over_time_and_is_off_in_evaluation(name):
    head, width = make(name, dropout=0.5)
    g = torch.randn(1, 2, width).expand(6, 2, width)  # the same hidden state at six time steps
    _, h = head.components(g)
    assert torch.equal(h, h[:1].expand_as(h))  # one mask for all time steps
    assert (h == 0).any()
    head.eval()
    _, h = head.components(g)
    assert not (h == 0).any()


@pytest.mark.parametrize("name", ["moc", "mos"])
def test_batch_first_moves_the_shared_mask_to_the_second_dimension(name):
    head, width = make(name, dropout=0.5, batch_first=True)
    g = torch.randn(2, 1, width).expand(2, 6, width)  # two texts, each with the same hidden state at six time steps
    _, h = head.components(g)
    assert torch.equal(h, h[:, :1].expand_as(h))
    assert not torch.equal(h[0, 0] == 0, h[1, 0] == 0)


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize(("pad", "state"), [(-100, None), (V, None), (0, None), (0, torch.nan), (0, torch.inf)])
def test_padding_has_no_loss_and_no_gradient(name, pad, state):
    head, width = make(name)
    g, targets = torch.randn(5, 3, width), torch.randint(1, V, (5, 3))
    kept = torch.rand(5, 3) < 0.6
    kept[0, 0], kept[4, 2] = True, False
    expected = head.nll(g[kept], targets[kept])
    expected.mean().backward()
    gradients = {key: p.grad.clone() for key, p in head.named_parameters()}
    head.zero_grad()
    if state is not None:
        g[~kept] = state
    g.requires_grad_()
    nll = head.nll(g, torch.where(kept, targets, pad), ignore_index=pad)
    (nll.sum() / kept.sum()).backward()
    torch.testing.assert_close(nll[kept], expected)
    assert (nll[~kept] == 0).all()
    assert (g.grad[~kept] == 0).all()
    for key, p in head.named_parameters():
        torch.testing.assert_close(p.grad, gradients[key], msg=lambda m, key=key: f"{key}: {m}")


@pytest.mark.parametrize("name", HEADS)
def test_calling_a_head_returns_its_loss(name):
    head, width = make(name)
    g, targets = torch.randn(5, width), torch.randint(V, (5,))
    assert torch.equal(head(g, targets), head.nll(g, targets))


@pytest.mark.parametrize("name", HEADS)
def test_calling_a_head_without_targets_returns_log_probabilities(name):
    head, width = make(name)
    g = torch.randn(5, 3, width)
    assert torch.equal(head(g), head.log_prob(g))


EXCHANGED = {
    "in_features": IN, "embed_dim": D, "vocab_size": V, "n_components": K, "dropout": 0.5, "batch_first": True,
    "bias": False, "scale": 2.0, "impl": "chunked", "slab_bytes": 4096, "shared_mask": True, "sample_below": 0.1,
}  # fmt: skip


@pytest.mark.parametrize("kind", [SoftmaxHead, MoCHead, MoSHead])
def test_heads_take_the_same_keyword_arguments(kind):
    head = kind(**EXCHANGED, weight=nn.Parameter(torch.randn(V, D)))
    g, targets = torch.randn(2, 6, IN), torch.randint(V, (2, 6))
    head.nll(g, targets).mean().backward()
    assert all(p.grad is not None for p in head.parameters())
    assert head.eval().log_prob(g).shape == (2, 6, V)
    assert set(inspect.signature(kind).parameters) == {*EXCHANGED, "weight"}


def test_a_softmax_projects_states_to_another_embedding_size():
    head = SoftmaxHead(IN, V, embed_dim=D).double()
    g = 3 * torch.randn(200, IN, dtype=torch.float64)
    logits = (g @ head.latent.weight.T + head.latent.bias) @ head.weight.T
    torch.testing.assert_close(head.log_prob(g), logits.log_softmax(-1))
    torch.testing.assert_close(head.nll(g, torch.zeros(200, dtype=torch.long)), -logits.log_softmax(-1)[:, 0])


def test_a_softmax_drops_the_same_features_at_every_time_step():
    head = SoftmaxHead(IN, V, dropout=0.5, batch_first=True)
    h = head.context(torch.ones(2, 6, IN))
    assert torch.equal(h, h[:, :1].expand_as(h))
    assert set(h.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(head.eval().context(torch.ones(2, 6, IN)), torch.ones(2, 6, IN))


@pytest.mark.parametrize("std", [0.02, 0.1, 1.0])
@pytest.mark.parametrize("width", [48, 768])
@pytest.mark.parametrize("kind", [MoCHead, MoSHead])
def test_a_mixture_starts_with_logits_of_the_same_spread_for_any_tied_embedding(kind, width, std):
    weight = nn.Parameter(std * torch.randn(500, width))
    head = kind(width, width, 500, K, weight=weight)
    with torch.no_grad():
        _, h = head.components(torch.randn(100, width))
        logits = h @ weight.T
    assert 0.4 < logits.std() < 0.6
    assert head.scale.item() == pytest.approx(1 / weight.square().sum(1).mean().sqrt().item())


def test_the_scale_is_saved_with_the_weights():
    saved = MoSHead(IN, D, V, K, weight=nn.Parameter(torch.randn(V, D)))
    loaded = MoSHead(IN, D, V, K)
    loaded.load_state_dict(saved.state_dict())
    g = torch.randn(5, IN)
    assert torch.equal(loaded(g), saved(g))


def test_init_mixture_fits_the_scale_after_another_initialisation():
    embedding = nn.Embedding(V, D)
    head = MoSHead(IN, D, V, K, weight=embedding.weight)
    nn.init.constant_(embedding.weight, 0.01)
    nn.init.zeros_(head.latent.weight)
    head.init_mixture()
    assert head.scale.item() == pytest.approx(100 / D**0.5)
    assert head.latent.weight.std() > 0.1
    assert (embedding.weight == 0.01).all()


@pytest.mark.parametrize("head_type", [SoftmaxHead, MoCHead, MoSHead])
def test_init_mixture_draws_the_layers_below_the_embedding(head_type):
    head = head_type(IN, embed_dim=D, vocab_size=V, n_components=K)
    nn.init.zeros_(head.latent.weight)
    head.init_mixture()
    assert head.latent.weight.std() > 0.1


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("head_dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_states_of_any_precision_work_under_autocast(name, head_dtype, dtype):
    head, width = make(name)
    head = head.to(head_dtype)
    g, targets = torch.randn(7, width, dtype=dtype, requires_grad=True), torch.randint(V, (7,))
    with torch.autocast("cpu", torch.bfloat16):
        nll = head.nll(g, targets)
        log_p = head.log_prob(g)
    nll.mean().backward()
    assert g.grad.dtype == dtype
    torch.testing.assert_close(nll.double(), -log_p.gather(-1, targets[:, None])[:, 0].double(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("ignore_index", [None, -100])
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64], ids=str)
def test_states_must_be_floating_point(name, dtype, ignore_index):
    head, width = make(name)
    g = torch.ones(3, width, dtype=dtype)
    with pytest.raises(ValueError, match=f"^g .*{dtype}"):
        head.nll(g, torch.zeros(3, dtype=torch.long), ignore_index=ignore_index)
    with pytest.raises(ValueError, match=f"^g .*{dtype}"):
        head.log_prob(g)


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("slab_bytes", [0, -1])
def test_slab_bytes_must_be_positive(name, slab_bytes):
    head, width = make(name)
    with pytest.raises(ValueError, match=f"^slab_bytes.*{slab_bytes}"):
        head.nll(torch.randn(3, width), torch.zeros(3, dtype=torch.long), slab_bytes=slab_bytes)


def test_only_mos_exceeds_rank_d_plus_2():
    ranks = {}
    for name in HEADS:
        head, width = make(name)
        head = head.double()
        head.weight.data.normal_()
        head.bias.data.normal_()
        with torch.no_grad():
            log_p = head.log_prob(3 * torch.randn(200, width, dtype=torch.float64))
        ranks[name] = numerical_rank(torch.linalg.svdvals(log_p), log_p.shape)
    assert ranks["softmax"] == D + 2
    assert ranks["moc"] == D + 2
    assert ranks["mos"] > 2 * (D + 2)


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("invalid", [-100, -1, V])
def test_a_target_outside_the_vocabulary_is_named(name, invalid):
    head, width = make(name)
    with pytest.raises(ValueError, match=f"targets.* {invalid};.*ignore_index"):
        head.nll(torch.randn(3, width), torch.tensor([0, invalid, V - 1]))
    with pytest.raises(ValueError, match=f" {invalid};"):
        head.nll(torch.randn(3, width), torch.tensor([0, invalid, -7]), ignore_index=-7)


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("wrong", [nn.Embedding(V, D), torch.randn(V, D)], ids=["module", "tensor"])
def test_only_a_parameter_can_be_tied(name, wrong):
    with pytest.raises(TypeError, match=type(wrong).__name__):
        make(name, weight=wrong)


def test_repr_shows_the_sizes():
    assert "in_features=12, embed_dim=6, vocab_size=40, n_components=4, dropout=0.5, bias=True" in repr(
        make("mos", dropout=0.5)[0]
    )
    assert "in_features=6, embed_dim=6, vocab_size=40, dropout=0.0, bias=False" in repr(make("softmax", bias=False)[0])


@pytest.mark.parametrize("name", HEADS)
def test_hidden_states_of_the_wrong_size_name_in_features(name):
    head, width = make(name)
    calls = [head.log_prob, lambda g: head.nll(g, torch.zeros(4, dtype=torch.long))]
    for call in [*calls, *([head.components] if name != "softmax" else [])]:
        with pytest.raises(ValueError, match=f"in_features = {width}"):
            call(torch.randn(4, 5))


@pytest.mark.parametrize(("g", "targets"), [((4, IN), (5,)), ((3, 4, IN), (4, 3)), ((3, 4, IN), (12,))])
def test_targets_must_have_the_leading_shape_of_g(g, targets):
    with pytest.raises(ValueError, match="targets"):
        make("mos")[0].nll(torch.randn(g), torch.zeros(targets, dtype=torch.long))


SIZES = {"in_features": IN, "embed_dim": D, "vocab_size": V, "n_components": K}


@pytest.mark.parametrize("size", [0, -3])
@pytest.mark.parametrize(
    ("head", "which"),
    [(SoftmaxHead, "in_features"), (SoftmaxHead, "vocab_size"), *((h, w) for h in (MoCHead, MoSHead) for w in SIZES)],
)
def test_an_impossible_size_is_named(head, which, size):
    sizes = SIZES if head is not SoftmaxHead else {"in_features": IN, "vocab_size": V}
    with pytest.raises(ValueError, match=f"^{which}.*{size}"):
        head(**{**sizes, which: size})


@pytest.mark.parametrize("kind", [MoCHead, MoSHead])
@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5])
def test_an_impossible_dropout_is_named(kind, rate):
    with pytest.raises(ValueError, match=f"^dropout.*{rate}"):
        kind(**SIZES, dropout=rate)


@pytest.mark.parametrize("name", ["softmax", "moc", "mos"])
def test_slab_bytes_of_the_head_or_the_call_reach_the_loss(name, monkeypatch):
    seen = []

    def loss(h, log_pi, weight, bias, targets, *, slab_bytes, **options):
        seen.append(slab_bytes)
        return torch.zeros(len(targets))

    monkeypatch.setattr("highrank.heads.head.mos_nll", loss)
    kind = {"softmax": SoftmaxHead, "moc": MoCHead, "mos": MoSHead}[name]
    head = kind(6, 11, slab_bytes=12345) if name == "softmax" else kind(6, 4, 11, 3, slab_bytes=12345)
    head.nll(torch.randn(5, 6), torch.randint(11, (5,)))
    head.nll(torch.randn(5, 6), torch.randint(11, (5,)), slab_bytes=678)  # for this call
    head(torch.randn(5, 6), torch.randint(11, (5,)), slab_bytes=90)
    head.nll(torch.randn(5, 6), torch.randint(11, (5,)))
    assert seen == [12345, 678, 90, 12345]


def test_a_head_may_sample_its_gradients():
    head = MoSHead(6, 4, 11, 3, sample_below=1.0)
    g, targets = torch.randn(5, 6), torch.randint(11, (5,))
    first, second = (head.nll(g, targets) for _ in range(2))
    assert torch.equal(first, second)
    gradients = [torch.autograd.grad(nll.sum(), head.weight)[0] for nll in (first, second)]
    assert not torch.equal(*gradients)


@pytest.mark.parametrize("name", ["softmax", "moc"])
def test_a_head_with_one_softmax_draws_no_sample(name):
    head, width = make(name, sample_below=0.5)
    g, targets = torch.randn(5, width), torch.randint(V, (5,))
    before = torch.get_rng_state()
    head.nll(g, targets).sum().backward()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("kind", [SoftmaxHead, MoCHead, MoSHead])
def test_the_loss_is_computed_in_the_precision_of_the_weights(kind):
    """A float32 state must not reduce the precision of a float64 head."""
    head = (kind(6, 11) if kind is SoftmaxHead else kind(6, 5, 11, 3)).double()
    g, targets = torch.randn(4, 6), torch.arange(4)
    expected = -head.log_prob(g)[torch.arange(4), targets]
    torch.testing.assert_close(head.nll(g, targets).double(), expected, rtol=1e-12, atol=1e-12)
