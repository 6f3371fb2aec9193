"""Every implementation that is timed computes the same loss."""

import sys
import types

import pytest
import torch
import torch.nn.functional as F

import peers
from peers import IMPLEMENTATIONS, ONE_SOFTMAX, TORCH_SOFTMAX, relative_error

CPU = torch.device("cpu")
SHAPE = (48, 3, 20, 1000)


@pytest.mark.parametrize("one", [*IMPLEMENTATIONS, ONE_SOFTMAX, TORCH_SOFTMAX], ids=lambda one: one.name)
def test_an_implementation_agrees_with_float64(one):
    if one.gpu_only or ("linear_cross_entropy" in one.name and not hasattr(F, "linear_cross_entropy")):
        pytest.skip("needs a GPU, or torch 2.13")
    k = 1 if "K = 1" in one.name else 3
    assert relative_error(one.load(), (48, k, 20, 1000), CPU, torch.float32) < 1e-4  # the naive one is cut off at 1e-8


def test_a_loss_that_gives_every_token_the_same_gradient_has_a_large_error():
    def even(*inputs):
        nll = peers.naive(*inputs)
        return nll.detach() + (nll - nll.detach()).mean()

    assert relative_error(even, SHAPE, CPU, torch.float32) > 0.1


def without_bias(e, c, targets, reduction="mean", filter_eps="high"):
    assert filter_eps is None  # no gradient is dropped
    assert e.shape[1] % 16 == 0
    return F.cross_entropy(F.linear(e, c), targets, reduction=reduction)


def with_bias(e, c, targets, bias=None, reduction="mean", filter_eps="high"):
    assert filter_eps is None
    assert e.shape[1] == SHAPE[2]  # not copied
    return F.cross_entropy(F.linear(e, c, bias), targets, reduction=reduction)


@pytest.mark.parametrize("function", [without_bias, with_bias])
def test_cut_cross_entropy_is_exact_in_every_release(function, monkeypatch):
    monkeypatch.setitem(sys.modules, "cut_cross_entropy", types.SimpleNamespace(linear_cross_entropy=function))
    assert relative_error(peers.cut_cross_entropy(), SHAPE, CPU, torch.float32) < 1e-5
