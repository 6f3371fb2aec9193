"""DOCHead: a mixture of softmaxes from several layers, against a version written by hand."""

import pytest
import torch
from torch import Tensor

from highrank.heads import DOCHead, MoSHead, SoftmaxHead

LAST, SECOND, D, V = 12, 9, 6, 40


def make(**options) -> DOCHead:
    head = DOCHead((LAST, SECOND), D, V, (15, 5), **options).double()
    head.bias.data.normal_()
    return head


def by_hand(head: DOCHead, last: Tensor, second: Tensor) -> Tensor:
    """Return the probabilities, (N, V), of 15 softmaxes from the last layer and 5 from the second."""
    pi = torch.softmax(last @ head.prior.weight.T, dim=-1)
    p = torch.zeros(len(last), V, dtype=last.dtype)
    for k in range(20):
        if k < 15:
            rows = slice(k * D, (k + 1) * D)
            features = last @ head.latent.weight[rows].T + head.latent.bias[rows]
        else:
            rows = slice((k - 15) * D, (k - 14) * D)
            features = second @ head.lower[0].weight[rows].T + head.lower[0].bias[rows]
        h = head.scale * torch.tanh(features)
        p += pi[:, k, None] * torch.softmax(h @ head.weight.T + head.bias, dim=-1)
    return p


def test_a_mixture_of_15_and_5_equals_one_written_by_hand():
    head = make()
    last, second = torch.randn(7, LAST).double(), torch.randn(7, SECOND).double()
    targets = torch.randint(V, (7,))
    g = torch.cat([last, second], dim=-1)
    p = by_hand(head, last, second)
    torch.testing.assert_close(head.log_prob(g).exp(), p)
    nll = -p[torch.arange(7), targets].log()
    torch.testing.assert_close(head.nll(g, targets), nll)

    parameters = list(head.parameters())
    expected = torch.autograd.grad(nll.mean(), parameters)
    for ours, by_autograd in zip(torch.autograd.grad(head.nll(g, targets).mean(), parameters), expected, strict=True):
        torch.testing.assert_close(ours, by_autograd)


def test_without_lower_layers_it_is_a_mixture_of_softmaxes():
    doc, mos = DOCHead((LAST,), D, V, (4,)), MoSHead(LAST, D, V, 4)
    mos.load_state_dict(doc.state_dict())
    g = torch.randn(7, 3, LAST)
    assert torch.equal(doc.log_prob(g), mos.log_prob(g))


def test_a_shared_mask_covers_the_components_of_all_layers():
    head = DOCHead((LAST, SECOND), 50, V, (15, 5), dropout=0.6, shared_mask=True)
    dropped = head.components(torch.randn(4, 3, LAST + SECOND))[1] == 0  # (T, B, K, D)
    assert torch.equal(dropped, dropped[:1, :, :1].expand_as(dropped))
    assert 0.4 < dropped.float().mean() < 0.8


def test_init_mixture_draws_the_projections_of_all_layers():
    head = make()
    before = {name: p.detach().clone() for name, p in head.named_parameters()}
    head.init_mixture()
    drawn = {name for name, p in head.named_parameters() if not torch.equal(p, before[name])}
    assert drawn == {"prior.weight", "latent.weight", "latent.bias", "lower.0.weight", "lower.0.bias"}


def test_every_head_takes_the_options_of_a_mixture():
    options = {"shared_mask": True, "scale": 1.0, "sample_below": 0.1, "batch_first": True, "dropout": 0.1}
    doc = DOCHead((D, D), D, V, (2, 1), **options)
    for head in (SoftmaxHead(D, V, **options), MoSHead(D, D, V, 2, **options), doc):
        assert head(torch.randn(2, 3, head.in_features), torch.randint(V, (2, 3))).isfinite().all()


def test_hidden_states_of_the_wrong_size_are_named():
    with pytest.raises(ValueError, match="in_features"):
        make().log_prob(torch.randn(3, LAST))
