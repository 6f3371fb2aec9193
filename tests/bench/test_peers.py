"""Every implementation that is timed computes the same loss."""

import enum
import sys
import types

import pytest
import torch
import torch.nn.functional as F

from highrank.bench import peers
from highrank.bench.peers import implementations, relative_errors
from highrank.ops.mos_nll import mos_nll

CPU = torch.device("cpu")
SHAPE = (48, 3, 20, 1000)


@pytest.mark.parametrize("one", implementations(CPU, torch.float32), ids=lambda one: one.name)
def test_an_implementation_agrees_with_float64(one):
    nll, grad = relative_errors(one.load(), SHAPE, CPU, torch.float32)
    assert nll < 1e-5
    assert grad < 1e-4  # the naive one is cut off at a probability of 1e-8


def test_a_row_loss_that_ignores_upstream_gradients_has_a_large_error():
    def forgetful(a, w, b, y):
        rows = F.cross_entropy(F.linear(a, w, b), y, reduction="none")
        return rows.detach() + (rows - rows.detach()).mean()

    nll, grad = relative_errors(peers.compose(forgetful), SHAPE, CPU, torch.float32)
    assert nll < 1e-5
    assert grad > 0.1


def test_a_loss_that_gives_every_token_the_same_gradient_has_a_large_error():
    def even(*inputs):
        nll = peers.naive(*inputs)
        return nll.detach() + (nll - nll.detach()).mean()

    nll, grad = relative_errors(even, SHAPE, CPU, torch.float32)
    assert nll < 1e-5
    assert grad > 0.1


def fake_cut_cross_entropy(monkeypatch, names, function):
    """Install a stand-in for the package with the given modes."""
    module = types.ModuleType("cut_cross_entropy")
    module.LinearCrossEntropyImpl = enum.IntEnum("LinearCrossEntropyImpl", names)
    module.linear_cross_entropy = function
    monkeypatch.setitem(sys.modules, "cut_cross_entropy", module)


def test_cut_cross_entropy_without_a_bias_is_exact(monkeypatch):
    modes = set()

    def old(e, c, targets, reduction="mean", filter_eps="high", impl="cce"):
        modes.add((filter_eps, impl))
        assert e.shape[1] % 16 == 0
        return F.cross_entropy(F.linear(e, c), targets, reduction=reduction)

    fake_cut_cross_entropy(monkeypatch, ["CCE"], old)
    assert max(relative_errors(peers.cut_cross_entropy(), SHAPE, CPU, torch.float32)) < 1e-5
    assert modes == {(None, "cce")}  # the filter of small gradients is off


def test_cut_cross_entropy_with_a_bias_is_exact(monkeypatch):
    modes = set()

    def new(e, c, targets, bias=None, reduction="mean", filter_eps="high", impl="cce"):
        modes.add(impl)
        return F.cross_entropy(F.linear(e, c, bias), targets, reduction=reduction)

    fake_cut_cross_entropy(monkeypatch, ["CCE", "CCE_EXACT"], new)
    assert max(relative_errors(peers.cut_cross_entropy(), SHAPE, CPU, torch.float32)) < 1e-5
    assert modes == {"cce_exact"}


def test_torchs_softmax_is_the_mixture_of_one():
    h, _, w, b, y = peers.make_inputs((6, 1, 5, 11), CPU, torch.float32)
    log_pi = torch.zeros(6, 1)
    expected = mos_nll(h, log_pi, w, b, y)
    torch.testing.assert_close(peers.plain_softmax(h, log_pi, w, b, y), expected, rtol=1e-5, atol=1e-5)
