import pytest
import torch
import torch.nn.functional as F

from highrank.ops.linear import aligned_linear, padded_linear
from highrank.ops.pad import cut, kernel, pad, reference
from triton_interpreter import DEVICE, needs_kernels


def test_cut_is_the_inverse_and_the_gradient_of_pad():
    x = torch.randn(3, 5, 7, dtype=torch.float64, requires_grad=True)
    padded = pad(x, (3, 8, 16), torch.float64)
    assert torch.equal(cut(padded, (3, 5, 7)), x)
    assert padded.count_nonzero() == x.count_nonzero()
    assert torch.autograd.gradcheck(lambda x: pad(x, (3, 8, 16), torch.float64), x)
    assert torch.autograd.gradcheck(lambda x: cut(x, (2, 3, 4)), x)
    assert torch.autograd.gradgradcheck(lambda x: pad(x, (3, 8, 16), torch.float64) ** 2, x)
    assert torch.autograd.gradgradcheck(lambda x: cut(x, (2, 3, 4)) ** 2, x)


@needs_kernels
@pytest.mark.parametrize("shape", [(3, 5, 7), (5, 7)])
def test_the_kernel_equals_the_reference(shape):
    x = torch.randn(*shape[:-2], shape[-1], shape[-2], device=DEVICE).transpose(-1, -2)  # not contiguous
    wide = (*shape[:-2], 8, 16)
    assert torch.equal(kernel.pad(x, wide, torch.float16), reference(x, wide, torch.float16))


@pytest.mark.parametrize(("inputs", "outputs"), [(16, 8), (13, 11)])
def test_padded_linear_equals_linear_in_values_and_gradients(inputs, outputs):
    x, w, b = (torch.randn(s, dtype=torch.float64) for s in ((4, 3, inputs), (outputs, inputs), (outputs,)))
    results = []
    for function in (F.linear, lambda *tensors: padded_linear(*tensors, torch.float64)):
        leaves = [t.clone().requires_grad_() for t in (x, w, b)]
        y = function(*leaves)
        y.pow(2).sum().backward()
        results.append([y, *(leaf.grad for leaf in leaves)])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_aligned_linear_under_autocast_is_as_exact_as_torch(dtype):
    x, w, b = (torch.randn(s, device="cuda") for s in ((70, 12, 620), (4500, 620), (4500,)))
    truth = F.linear(x.double(), w.double(), b.double())
    with torch.autocast("cuda", dtype):
        ours, theirs = aligned_linear(x, w, b), F.linear(x, w, b)
    grads = []
    for function in (aligned_linear, F.linear):
        leaves = [t.clone().requires_grad_() for t in (x, w, b)]
        with torch.autocast("cuda", dtype):
            function(*leaves).float().pow(2).mean().backward()
        grads.append([leaf.grad.double() for leaf in leaves])
    exact = [t.double().requires_grad_() for t in (x, w, b)]
    F.linear(*exact).pow(2).mean().backward()
    for mine, plain, true in zip(*grads, [leaf.grad for leaf in exact], strict=True):
        assert (mine - true).norm() <= 2 * (plain - true).norm() + 1e-6 * true.norm()
    assert ours.dtype == dtype
    assert ours.shape == truth.shape
    assert (ours.double() - truth).norm() <= 2 * (theirs.double() - truth).norm()


def test_padded_linear_multiplies_aligned_sizes_in_the_given_dtype(monkeypatch):
    x, w, b = (torch.randn(s) for s in ((4, 13), (11, 13), (11,)))
    expected, sizes, linear = F.linear(x.half(), w.half(), b.half()), [], F.linear
    monkeypatch.setattr("torch.nn.functional.linear", lambda *t: sizes.extend(t[1].shape) or linear(*t))
    ours = padded_linear(x, w, b, torch.float16)
    assert ours.dtype == torch.float16
    torch.testing.assert_close(ours, expected)
    assert sizes == [16, 16]
