from functools import partial

import pytest
import torch
from torch import nn

from highrank.ops.lstm import _lstm, lstm, padded_lstm


def weights(module: nn.LSTM):
    return module.weight_ih_l0, module.weight_hh_l0, module.bias_ih_l0, module.bias_hh_l0


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_equals_torch(device):
    module = nn.LSTM(5, 7).to(device)
    x, h, c = (torch.randn(*s, device=device) for s in ((9, 3, 5), (3, 7), (3, 7)))
    output, (h_last, c_last) = lstm(x, (h, c), *weights(module))
    expected, (h_expected, c_expected) = module(x, (h[None], c[None]))
    for a, b in ((output, expected), (h_last, h_expected[0]), (c_last, c_expected[0])):
        torch.testing.assert_close(a, b)


def test_splitting_a_sequence_carries_the_state():
    module = nn.LSTM(5, 7)
    x, state = torch.randn(8, 2, 5), (torch.zeros(2, 7), torch.zeros(2, 7))
    whole, _ = lstm(x, state, *weights(module))
    first, state = lstm(x[:3], state, *weights(module))
    second, _ = lstm(x[3:], state, *weights(module))
    torch.testing.assert_close(torch.cat([first, second]), whole)


@pytest.mark.parametrize("batch", [8, 3])
def test_padding_is_exact_in_values_and_gradients(batch):
    """A padded unit stays at zero for ever and receives no gradient, so nothing but round-off can differ."""
    module = nn.LSTM(5, 7).double()
    x, h, c = (torch.randn(*s, dtype=torch.float64) for s in ((9, batch, 5), (batch, 7), (batch, 7)))
    results = []
    for function in (lstm, partial(padded_lstm, dtype=torch.float64)):
        leaves = [t.detach().clone().requires_grad_() for t in (x, h, c, *weights(module))]
        output, (h_last, c_last) = function(leaves[0], (leaves[1], leaves[2]), *leaves[3:])
        (output.pow(2).sum() + h_last.sum() + (3 * c_last).sum()).backward()
        results.append([output, h_last, c_last, *[leaf.grad for leaf in leaves]])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.gpu
@pytest.mark.parametrize(("inputs", "hidden", "batch"), [(280, 960, 12), (960, 620, 16), (300, 1150, 15)])
def test_half_precision_on_cuda_is_as_exact_as_torch(inputs, hidden, batch):
    module = nn.LSTM(inputs, hidden).cuda()
    shapes = ((30, batch, inputs), (batch, hidden), (batch, hidden))
    x, h, c = (torch.randn(*s, device="cuda") for s in shapes)

    def outputs(function, dtype):
        leaves = [t.detach().to(dtype).requires_grad_() for t in (x, *weights(module))]
        output, _ = function(leaves[0], (h.to(dtype), c.to(dtype)), *leaves[1:])
        output.float().pow(2).sum().backward()
        return [output.double(), *[leaf.grad.double() for leaf in leaves]]

    def plain_lstm(x, state, *weights):
        return _lstm(x, *state, *weights)

    truth = outputs(plain_lstm, torch.float64)
    plain, ours = outputs(plain_lstm, torch.float16), outputs(lstm, torch.float16)
    for t, a, b in zip(truth, plain, ours, strict=True):
        assert (b - t).norm() <= 2 * (a - t).norm() + 1e-3 * t.norm()
