"""Every implementation that is timed computes the same loss, however it is put together."""

import enum
import sys
import types

import pytest
import torch
import torch.nn.functional as F

from highrank.bench import peers
from highrank.bench.memory import Job, cpu_extra_mib
from highrank.bench.peers import errors, find_loss, implementations

CPU = torch.device("cpu")
SHAPE = (48, 3, 20, 1000)


def test_everything_here_is_right():
    for one in implementations(CPU, torch.float32):
        nll, grad = errors(one.load(), SHAPE, CPU, torch.float32)
        assert nll < 1e-5, one.name
        assert grad < 1e-4, one.name  # the naive way has a floor of 1e-8 under the probability
        assert one.version, one.name


def test_a_wrong_gradient_shows():
    """A peer that forgets the upstream gradient of each row, as some have."""

    def forgetful(a, w, b, y):
        rows = F.cross_entropy(F.linear(a, w, b), y, reduction="none")
        return rows.detach() + (rows - rows.detach()).mean()

    def even(*inputs):  # and one that gives every token the same
        nll = peers.naive(*inputs)
        return nll.detach() + (nll - nll.detach()).mean()

    for loss in (peers.composed(forgetful), even):
        nll, grad = errors(loss, SHAPE, CPU, torch.float32)
        assert nll < 1e-5
        assert grad > 0.1


@pytest.mark.parametrize("release", ["without a bias", "with a bias"])
def test_cut_cross_entropy_is_exact_in_either_release(monkeypatch, release):
    """Stand-ins with the signatures of releases: the filter of small gradients must be off, and the bias must count."""
    asked = []

    def old(e, c, targets, reduction="mean", filter_eps="high", impl="cce"):
        asked.append((filter_eps, impl))
        assert e.shape[1] % 16 == 0
        return F.cross_entropy(F.linear(e, c), targets, reduction=reduction)

    def new(e, c, targets, bias=None, reduction="mean", filter_eps="high", impl="cce"):
        asked.append((filter_eps, impl))
        return F.cross_entropy(F.linear(e, c, bias), targets, reduction=reduction)

    module = types.ModuleType("cut_cross_entropy")
    names = ["CCE"] if release == "without a bias" else ["CCE", "CCE_EXACT"]
    module.LinearCrossEntropyImpl = enum.IntEnum("LinearCrossEntropyImpl", names)
    module.linear_cross_entropy = old if release == "without a bias" else new
    monkeypatch.setitem(sys.modules, "cut_cross_entropy", module)
    nll, grad = errors(peers._cut_cross_entropy(), SHAPE, CPU, torch.float32)
    assert max(nll, grad) < 1e-5
    assert set(asked) == ({(None, "cce")} if release == "without a bias" else {("high", "cce_exact")})


def test_a_plain_softmax_is_the_mixture_of_one():
    inputs = peers.make_inputs((6, 1, 5, 11), CPU, torch.float32)
    ours, torchs = (find_loss(name, CPU, torch.float32) for name in ("highrank", "cross_entropy"))
    log_pi = torch.zeros(6, 1)
    torch.testing.assert_close(
        ours(inputs[0], log_pi, *inputs[2:]), torchs(inputs[0], log_pi, *inputs[2:]), rtol=1e-5, atol=1e-5
    )


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from /proc")
def test_the_naive_way_is_seen_to_build_everything():
    n, k, v = 256, 4, 16_000
    whole = n * k * v * 4 / 2**20  # MiB of all logits
    naive, ours = cpu_extra_mib([Job("naive", (n, k, 8, v)), Job("highrank, chunked", (n, k, 8, v))], torch.float32)
    assert naive > 2 * whole
    (told,) = [one.bytes_a_logit for one in implementations(CPU, torch.float32) if one.name == "naive"]
    assert naive == pytest.approx(told / 4 * whole, rel=0.25)  # what it is said to need, before it is tried
    assert 0 < ours < whole
