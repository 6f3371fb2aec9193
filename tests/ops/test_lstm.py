import pytest
import torch
from torch import nn

from highrank.ops.lstm import lstm


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
