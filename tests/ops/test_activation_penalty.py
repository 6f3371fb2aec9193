import pytest
import torch

from highrank.ops.activation_penalty import activation_penalty, kernel, reference
from triton_interpreter import DEVICE, needs_kernels


def test_the_reference_is_ar_plus_tar():
    g, raw = torch.randn(3, 2, 4), torch.randn(3, 2, 4)
    steps = [(raw[t] - raw[t - 1]).pow(2) for t in (1, 2)]
    expected = 2.0 * g.pow(2).mean() + 0.5 * torch.stack(steps).mean()
    torch.testing.assert_close(activation_penalty(g, raw, 2.0, 0.5), expected)
    torch.testing.assert_close(activation_penalty(g[:1], raw[:1], 2.0, 0.5), 2.0 * g[:1].pow(2).mean())


def test_either_penalty_may_be_zero():
    g, raw = torch.randn(3, 2, 4), torch.randn(3, 2, 4)
    ar, tar = g.pow(2).mean(), raw.diff(dim=0).pow(2).mean()
    torch.testing.assert_close(activation_penalty(g, raw, 2.0, 0.0), 2.0 * ar)
    torch.testing.assert_close(activation_penalty(g, raw, 0.0, 0.5), 0.5 * tar)
    assert activation_penalty(g, raw, 0.0, 0.0) == 0


def test_half_precision_is_summed_in_float32():
    """300 squared overflows float16."""
    g = torch.full((3, 2, 4), 300.0).half()
    for alpha, expected in ((2.0, 180_000.0), (0.0, 0.0)):
        penalty = activation_penalty(g, g, alpha, 0.0)
        assert penalty.dtype == torch.float32
        assert penalty == expected


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_kernel_equals_the_reference_in_value_and_gradients(dtype):
    """In half precision both round the same float32 gradients once."""
    whole = torch.randn(6, 8, 40, device=DEVICE).to(dtype)
    results = []
    for function in (kernel.activation_penalty, reference):
        leaf = whole.clone().requires_grad_()
        raw = leaf[:, :5, :37]  # a view, like the padded LSTM's output
        g = raw * 1.5
        value = function(g, raw, 2.0, 0.7)
        grads = torch.autograd.grad(value * 100, (g, leaf))
        results.append([value, *grads])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected)


@needs_kernels
def test_a_second_derivative_raises_instead_of_being_wrong():
    leaf = torch.randn(6, 5, 37, device=DEVICE, requires_grad=True)
    penalty = kernel.activation_penalty(leaf**2, leaf.sin(), 2.0, 0.7)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(penalty, leaf, create_graph=True)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_gpu_runs_the_kernel(dtype, monkeypatch):
    g, raw = (torch.randn(5, 3, 620, device="cuda").to(dtype) for _ in range(2))
    expected = reference(g, raw, 2.0, 1.0)
    taken = []
    whole = kernel.activation_penalty
    monkeypatch.setattr(kernel, "activation_penalty", lambda *a: taken.append(a) or whole(*a))
    torch.testing.assert_close(activation_penalty(g, raw, 2.0, 1.0), expected)
    assert len(taken) == 1
