"""`MoSHead.from_linear`: a mixture in the place of a linear layer."""

import pytest
import torch
from torch import nn

from highrank import MoCHead, MoSHead
from highrank.heads import DOCHead


def make(n_components=3, bias=True, dtype=torch.float64):
    linear = nn.Linear(9, 37, bias=bias).to(dtype)
    return linear, MoSHead.from_linear(linear, n_components)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("n_components", [1, 4])
def test_it_starts_equal_to_the_softmax(bias, n_components):
    linear, head = make(n_components, bias)
    g = torch.randn(5, 7, 9, dtype=torch.float64)
    targets = torch.randint(37, (5, 7))
    expected = linear(g).log_softmax(-1)
    assert (head.log_prob(g) - expected).abs().max() < 1e-14
    assert (head.nll(g, targets) + expected.gather(-1, targets[..., None])[..., 0]).abs().max() < 1e-14
    pi, h = head.components(g)
    assert torch.allclose(pi, torch.full((), 1 / n_components, dtype=pi.dtype))
    assert torch.equal(h, g[..., None, :].expand(5, 7, n_components, 9))


def test_weight_and_bias_are_shared():
    linear, head = make()
    assert head.weight is linear.weight
    assert head.bias is linear.bias


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_has_the_dtype_of_the_layer(dtype):
    _, head = make(dtype=dtype)
    assert {p.dtype for p in head.parameters()} == {dtype}


def test_the_components_get_different_gradients_from_the_first_step():
    _, head = make()
    head.nll(torch.randn(20, 9, dtype=torch.float64), torch.randint(37, (20,))).mean().backward()
    first, second, third = head.shift.weight.grad
    for a, b in [(first, second), (second, third), (first, third)]:
        assert (a - b).norm() > 0.5 * a.norm()


def test_training_breaks_the_rank_bound_of_the_layer():
    linear, head = make()
    g = torch.randn(200, 9, dtype=torch.float64)
    targets = torch.randint(37, (200,))
    optimizer = torch.optim.Adam(head.parameters(), 0.02)
    for _ in range(60):
        optimizer.zero_grad()
        head.nll(g, targets).mean().backward()
        optimizer.step()
    with torch.no_grad():
        assert torch.linalg.matrix_rank(linear(g).log_softmax(-1), rtol=1e-8) <= 9 + 2
        assert torch.linalg.matrix_rank(head.log_prob(g), rtol=1e-8) > 9 + 2


def test_gradients_are_those_of_the_definition():
    _, head = make()
    nn.init.normal_(head.shift.weight)
    nn.init.normal_(head.prior.weight)
    g = torch.randn(4, 9, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(37, (4,))
    fused = torch.autograd.grad(head.nll(g, targets).sum(), [g, *head.parameters()])
    plain = -head.log_prob(g).gather(-1, targets[:, None]).sum()
    for ours, expected in zip(fused, torch.autograd.grad(plain, [g, *head.parameters()]), strict=True):
        assert torch.allclose(ours, expected, atol=1e-12)


def test_init_mixture_makes_it_equal_to_the_softmax_again():
    linear, head = make()
    latent = head.latent.weight.clone()
    for parameter in (*head.prior.parameters(), *head.shift.parameters()):
        nn.init.normal_(parameter)
    head.init_mixture()
    g = torch.randn(5, 9, dtype=torch.float64)
    assert (head.log_prob(g) - linear(g).log_softmax(-1)).abs().max() < 1e-14
    assert not torch.equal(head.latent.weight, latent)


def test_only_plain_linear_layers_are_accepted():
    class Quantised(nn.Linear):
        pass

    for layer in (Quantised(9, 37), nn.Embedding(37, 9)):
        with pytest.raises(TypeError, match=type(layer).__name__):
            MoSHead.from_linear(layer, 2)


@pytest.mark.parametrize("head", [MoCHead, DOCHead])
def test_other_heads_do_not_make_a_mixture_of_softmaxes_instead(head):
    with pytest.raises(TypeError, match=head.__name__):
        head.from_linear(nn.Linear(9, 37), 3)
