"""What every head promises (DESIGN: the doors), and what tells them apart: the rank of their log-probabilities."""

import pytest
import torch
from torch import nn

from highrank import MoCHead, MoSHead, SoftmaxHead
from highrank.analysis.rank import numerical_rank

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
def test_any_float_dtype(name, dtype):
    head, width = make(name)
    head = head.to(dtype)
    g, targets = torch.randn(7, width, dtype=dtype, requires_grad=True), torch.randint(V, (7,))
    nll = head.nll(g, targets)
    nll.mean().backward()
    log_p = head.log_prob(g)
    assert nll.dtype == log_p.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(7, dtype=log_p.dtype))  # whatever the products run in
    assert g.grad.dtype == dtype
    assert all(torch.isfinite(p.grad).all() for p in head.parameters())


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_hidden_states_of_another_dtype_than_the_head(name, dtype):
    head, width = make(name)
    g, targets = torch.randn(7, width, dtype=dtype, requires_grad=True), torch.randint(V, (7,))
    head.nll(g, targets).mean().backward()
    assert g.grad.dtype == dtype
    assert head.weight.grad.dtype == torch.float32
    torch.testing.assert_close(
        head.nll(g, targets).float(), -head.log_prob(g).gather(-1, targets[:, None])[:, 0].float(), rtol=1e-2, atol=1e-2
    )


@pytest.mark.parametrize("name", HEADS)
def test_gradients_through_the_head(name):
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
    with pytest.raises(ValueError, match="tied weight must be"):
        make(name, weight=nn.Parameter(torch.randn(V, D + 1)))


@pytest.mark.parametrize("name", HEADS)
def test_bias_is_optional(name):
    assert make(name, bias=False)[0].bias is None
    assert make(name)[0].bias.shape == (V,)


@pytest.mark.parametrize("name", HEADS)
def test_heads_begin_as_in_the_released_code(name):
    head, _ = make(name)
    assert not head.bias.any()
    assert -0.1 <= head.weight.min() < -0.09
    assert 0.09 < head.weight.max() <= 0.1


@pytest.mark.parametrize("name", ["moc", "mos"])
def test_components(name):
    head, width = make(name)
    pi, h = head.components(torch.randn(3, 5, width))
    assert pi.shape == (3, 5, K)
    assert h.shape == (3, 5, K, D)
    torch.testing.assert_close(pi.sum(-1), torch.ones(3, 5))
    assert h.abs().max() <= 1
    assert head.prior.bias is None
    assert head.latent.bias is not None


def test_mos_mixes_probabilities_and_moc_contexts():
    """Sections 2.4 and 2.5 from the parameters alone, to the last digits of float64."""
    mos, moc = make("mos")[0].double(), make("moc")[0].double()
    mos.bias.data.normal_()
    moc.load_state_dict(mos.state_dict())
    g, prior, latent = torch.randn(8, IN).double(), mos.prior, mos.latent
    pi = torch.softmax(g @ prior.weight.T, -1)
    h = torch.tanh(g @ latent.weight.T + latent.bias).view(8, K, D)
    for mine, theirs in zip(mos.components(g), (pi, h), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=0)
    mixed = (pi[..., None] * torch.softmax(h @ mos.weight.T + mos.bias, -1)).sum(1)
    torch.testing.assert_close(mos.log_prob(g), mixed.log(), rtol=1e-12, atol=0)
    context = (pi[..., None] * h).sum(1)
    expected = torch.log_softmax(context @ moc.weight.T + moc.bias, -1)
    torch.testing.assert_close(moc.log_prob(g), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", ["moc", "mos"])
def test_latent_dropout_is_variational_and_off_in_evaluation(name):
    head, width = make(name, dropout=0.5)
    g = torch.randn(1, 2, width).expand(6, 2, width)  # the same hidden state at six time steps
    _, h = head.components(g)
    assert torch.equal(h, h[:1].expand_as(h))  # one mask for all time steps
    assert (h == 0).any()
    head.eval()
    _, h = head.components(g)
    assert not (h == 0).any()


@pytest.mark.parametrize("name", ["moc", "mos"])
def test_latent_dropout_of_batch_first_states(name):
    head, width = make(name, dropout=0.5, batch_first=True)
    g = torch.randn(2, 1, width).expand(2, 6, width)  # two texts, each with the same hidden state at six time steps
    _, h = head.components(g)
    assert torch.equal(h, h[:, :1].expand_as(h))
    assert not torch.equal(h[0, 0] == 0, h[1, 0] == 0)


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize(("pad", "state"), [(-100, None), (V, None), (0, None), (0, torch.nan), (0, torch.inf)])
def test_padding_has_no_loss_and_no_gradient(name, pad, state):
    """Whatever its state is."""
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
def test_calling_a_head_gives_its_loss(name):
    head, width = make(name)
    g, targets = torch.randn(5, width), torch.randint(V, (5,))
    assert torch.equal(head(g, targets), head.nll(g, targets))


def test_rank_is_the_point():
    """log P of Softmax and MoC has rank at most D + 2; that of MoS exceeds it."""
    ranks = {}
    for name in HEADS:
        head, width = make(name)
        head = head.double()
        head.weight.data.normal_()
        head.bias.data.normal_()
        with torch.no_grad():
            log_p = head.log_prob(3 * torch.randn(200, width, dtype=torch.float64))
        ranks[name] = numerical_rank(torch.linalg.svdvals(log_p), *log_p.shape)
    assert ranks["softmax"] == D + 2
    assert ranks["moc"] == D + 2
    assert ranks["mos"] > 2 * (D + 2)


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("strange", [-100, -1, V])
def test_targets_outside_the_vocabulary_are_named(name, strange):
    head, width = make(name)
    with pytest.raises(ValueError, match=f"from 0 to {V - 1}, got {strange}; if that is padding.*ignore_index"):
        head.nll(torch.randn(3, width), torch.tensor([0, strange, V - 1]))
    with pytest.raises(ValueError, match=f"got {strange};"):
        head.nll(torch.randn(3, width), torch.tensor([0, strange, -7]), ignore_index=-7)


@pytest.mark.parametrize("name", HEADS)
def test_what_cannot_be_tied_is_named(name):
    for wrong in (nn.Embedding(V, D), torch.randn(V, D)):
        with pytest.raises(TypeError, match=rf"such as embedding\.weight, got {type(wrong).__name__}"):
            make(name, weight=wrong)


def test_a_head_tells_its_sizes():
    assert "in_features=12, embed_dim=6, vocab_size=40, n_components=4, dropout=0.5, bias=True" in repr(
        make("mos", dropout=0.5)[0]
    )
    assert repr(make("softmax", bias=False)[0]) == "SoftmaxHead(in_features=6, vocab_size=40, bias=False)"


@pytest.mark.parametrize("name", HEADS)
def test_hidden_states_of_the_wrong_size_are_named(name):
    head, width = make(name)
    calls = [head.log_prob, lambda g: head.nll(g, torch.zeros(4, dtype=torch.long))]
    for call in [*calls, *([head.components] if name != "softmax" else [])]:
        with pytest.raises(ValueError, match=rf"in_features = {width} as its last size, got shape \(4, 5\)"):
            call(torch.randn(4, 5))


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"whole numbers, got torch\.float32"):
        make("mos")[0].nll(torch.randn(4, IN), torch.zeros(4))
    with pytest.raises(ValueError, match="in_features = 6 as its last size"):
        make("softmax")[0].nll(torch.randn(4, 12), torch.zeros(4, dtype=torch.long))
    for g, targets in (((4, IN), (5,)), ((3, 4, IN), (4, 3)), ((3, 4, IN), (12,))):
        with pytest.raises(ValueError, match="leading shape"):
            make("mos")[0].nll(torch.randn(g), torch.zeros(targets, dtype=torch.long))
    for name in HEADS:
        head, width = make(name, impl="chunky")
        with pytest.raises(ValueError, match="unknown impl 'chunky'"):
            head.nll(torch.randn(4, width), torch.zeros(4, dtype=torch.long))


SIZES = {"in_features": IN, "embed_dim": D, "vocab_size": V, "n_components": K}


@pytest.mark.parametrize("size", [0, -3])
@pytest.mark.parametrize(
    ("head", "which"),
    [(SoftmaxHead, "in_features"), (SoftmaxHead, "vocab_size"), *((h, w) for h in (MoCHead, MoSHead) for w in SIZES)],
)
def test_impossible_sizes_are_named(head, which, size):
    sizes = SIZES if head is not SoftmaxHead else {"in_features": IN, "vocab_size": V}
    with pytest.raises(ValueError, match=f"^{which} must be at least 1, got {size}$"):
        head(**{**sizes, which: size})


@pytest.mark.parametrize("kind", [MoCHead, MoSHead])
@pytest.mark.parametrize("share", [-0.1, 1.0, 1.5])
def test_impossible_dropouts_are_named(kind, share):
    with pytest.raises(ValueError, match=f"^dropout must be at least 0 and below 1, got {share}$"):
        kind(**SIZES, dropout=share)


@pytest.mark.parametrize("name", ["softmax", "moc", "mos"])
def test_a_heads_memory_budget_reaches_the_loss(name, monkeypatch):
    seen = []

    def loss(h, log_pi, weight, bias, targets, *, impl, slab_bytes):
        seen.append(slab_bytes)
        return torch.zeros(len(targets))

    monkeypatch.setattr(f"highrank.heads.{'softmax' if name == 'softmax' else 'mos'}.mos_nll", loss)
    kind = {"softmax": SoftmaxHead, "moc": MoCHead, "mos": MoSHead}[name]
    head = kind(6, 11, slab_bytes=12345) if name == "softmax" else kind(6, 4, 11, 3, slab_bytes=12345)
    head.nll(torch.randn(5, 6), torch.randint(11, (5,)))
    head.nll(torch.randn(5, 6), torch.randint(11, (5,)), slab_bytes=678)  # for this call
    head(torch.randn(5, 6), torch.randint(11, (5,)), slab_bytes=90)
    head.nll(torch.randn(5, 6), torch.randint(11, (5,)))
    assert seen == [12345, 678, 90, 12345]


@pytest.mark.parametrize("kind", [SoftmaxHead, MoCHead, MoSHead])
def test_the_loss_is_computed_in_the_precision_of_the_weights(kind):
    """As log_prob is: a state in float32 does not make a head of float64 forget its digits."""
    head = (kind(6, 11) if kind is SoftmaxHead else kind(6, 5, 11, 3)).double()
    g, targets = torch.randn(4, 6), torch.arange(4)
    expected = -head.log_prob(g)[torch.arange(4), targets]
    torch.testing.assert_close(head.nll(g, targets).double(), expected, rtol=1e-12, atol=1e-12)
