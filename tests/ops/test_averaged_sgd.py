"""The fused update against its definition, under Triton's interpreter and on a GPU if there is one."""

import pytest
import torch

from highrank.ops.averaged_sgd import averaged_sgd_, kernel, reference_
from triton_interpreter import DEVICE, needs_kernels


def make(lists=3, device=DEVICE):
    generator = torch.Generator().manual_seed(0)
    shapes = [(3, 5), (4100,), (7, 1)]
    return [[torch.randn(s, generator=generator).to(device) for s in shapes] for _ in range(lists)]


def scalars(apply, device=DEVICE):
    return [torch.tensor(x, device=device) for x in (0.9, 0.3, 0.25, apply)]


@needs_kernels
@pytest.mark.parametrize("averaging", [True, False])
def test_the_kernel_equals_the_reference(averaging):
    results = []
    for function in (kernel.averaged_sgd_, reference_):
        p, g, a = make()
        function(p, g, a if averaging else None, *scalars(True))
        results.append(p + a)
    for x, y in zip(*results, strict=True):
        torch.testing.assert_close(x, y)


@needs_kernels
@pytest.mark.parametrize("apply", [True, False])
def test_the_kernel_equals_the_reference_with_two_averages(apply):
    results = []
    for function in (kernel.averaged_sgd_, reference_):
        p, g, a, s = make(4)
        function(p, g, a, *scalars(apply), s, torch.tensor(0.5, device=DEVICE))
        results.append(p + a + s)
    for x, y in zip(*results, strict=True):
        torch.testing.assert_close(x, y)
    p, _, a, s = make(4)
    assert all(torch.equal(x, y) != apply for x, y in zip(results[0], p + a + s, strict=True))


@pytest.mark.parametrize(
    "function", [pytest.param(kernel.averaged_sgd_, marks=needs_kernels), reference_, averaged_sgd_]
)
def test_nothing_changes_if_apply_is_false(function):
    p, g, a = make()
    before = [x.clone() for x in p + a]
    for x in g:
        x.fill_(torch.nan)
    keep, rate, share, apply = scalars(False)
    function(p, g, a, keep, rate * torch.nan, share, apply)  # the clipping factor of a NaN norm is NaN too
    assert all(torch.equal(x, y) for x, y in zip(before, p + a, strict=True))


def test_the_reference_decays_steps_and_averages():
    p, g, a, s = make(4, "cpu")
    expected = [0.9 * x - 0.3 * y for x, y in zip(p, g, strict=True)]
    averages = [z + 0.25 * (x - z) for x, z in zip(expected, a, strict=True)]
    second = [z + 0.5 * (x - z) for x, z in zip(expected, s, strict=True)]
    averaged_sgd_(p, g, a, *scalars(True, "cpu"), s, torch.tensor(0.5))
    for x, y in zip(p + a + s, expected + averages + second, strict=True):
        torch.testing.assert_close(x, y)


@needs_kernels
def test_more_tensors_than_fit_in_a_launch():
    results = []
    for function in (kernel.averaged_sgd_, reference_):
        p, g, a = ([torch.arange(3.0, device=DEVICE) * i + j for i in range(kernel.TENSORS + 3)] for j in range(3))
        function(p, g, a, *scalars(True))
        results.append(p + a)
    for x, y in zip(*results, strict=True):
        torch.testing.assert_close(x, y)
