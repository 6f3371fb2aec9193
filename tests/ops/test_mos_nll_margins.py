"""Margins: the target's logits are lowered by constants, which adversarial softmax computes."""

import pytest
import torch
from torch import Tensor

from highrank.ops.mos_nll import adversarial_margins, chunked, custom_op, kernel, mos_nll, reference
from highrank.ops.mos_nll.kernel import plan
from highrank.ops.mos_nll.sampling import RowSample
from triton_interpreter import DEVICE, needs_kernels

RAGGED = (7, 3, 37, 101)  # N, K, D, V
PTB = (840, 15, 280, 10_000)
UNEVEN = torch.linspace(-1, 2, RAGGED[0], dtype=torch.float64)
# Small blocks and slabs, so that a small problem has several of each.
SMALL = plan.Config(16, 32, 16, num_warps=4, num_stages=2, tma=False, flatten=True, programs=1, scratch_bytes=2048)


def make(shape=RAGGED, scale: float = 1.0) -> tuple[list[Tensor], Tensor, Tensor]:
    """Return h, log_pi, weight and bias in float64, targets and margins; a larger `scale` gives surer components."""
    n, k, d, v = shape
    generator = torch.Generator().manual_seed(0)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    inputs = [normal(n, k, d).tanh(), normal(n, k).log_softmax(-1), scale * normal(v, d) / d**0.5, normal(v)]
    targets = torch.randint(v, (n,), generator=generator)
    targets[::2] = (inputs[0][:, 0] @ inputs[2].T + inputs[3]).argmax(-1)[::2]  # component 0 is sure of every other one
    return inputs, targets, normal(n, k).abs()


def value_and_gradients(function, inputs, targets, margins, upstream, dtype=torch.float64, **options) -> list[Tensor]:
    device = options.pop("device", "cpu")
    leaves = [x.to(device, dtype).requires_grad_() for x in inputs]
    nll = function(*leaves, targets.to(device), margins=margins.to(device), **options)
    return [nll.detach(), *torch.autograd.grad(nll, leaves, upstream.to(nll))]


def sample(n: int = RAGGED[0], device: str = "cpu") -> RowSample:
    return RowSample(0.25, torch.rand(n, generator=torch.Generator().manual_seed(1)).to(device))


def test_the_loss_is_that_of_lowered_logits():
    (h, log_pi, weight, bias), targets, margins = make()
    p = torch.zeros(len(h), dtype=h.dtype)
    for k in range(h.shape[1]):
        logits = h[:, k] @ weight.T + bias
        logits[torch.arange(len(h)), targets] -= margins[:, k]
        p += log_pi[:, k].exp() * logits.softmax(-1)[torch.arange(len(h)), targets]
    for impl in ("reference", "chunked"):
        torch.testing.assert_close(mos_nll(h, log_pi, weight, bias, targets, impl=impl, margins=margins), -p.log())


def test_adversarial_margins_follow_their_definition():
    (h, _, weight, _), targets, _ = make()
    margins = adversarial_margins(h, weight, targets, 0.02)
    for n, y in enumerate(targets.tolist()):
        for k in range(h.shape[1]):
            cosine = torch.cosine_similarity(h[n, k], weight[y], dim=0)
            expected = 0.02 * weight[y].norm() * h[n, k].norm() if cosine > 0 else 0.0
            assert margins[n, k].item() == pytest.approx(float(expected))
    assert 0 < (margins > 0).sum() < margins.numel()
    assert not adversarial_margins(h.requires_grad_(), weight.requires_grad_(), targets, 0.02).requires_grad


@pytest.mark.parametrize("function", [reference.mos_nll, chunked.mos_nll], ids=["reference", "chunked"])
def test_gradcheck(function):
    inputs, targets, margins = make((4, 3, 5, 7))
    options = {"slab_bytes": 2 * 3 * 7 * 8} if function is chunked.mos_nll else {}  # two tokens
    leaves = [x.requires_grad_() for x in inputs]
    assert torch.autograd.gradcheck(lambda *x: function(*x, targets, margins=margins, **options), leaves)


def test_margins_get_no_gradient():
    inputs, targets, margins = make()
    margins.requires_grad_()
    for impl in ("reference", "chunked"):
        mos_nll(*(x.requires_grad_() for x in inputs), targets, impl=impl, margins=margins).sum().backward()
        assert margins.grad is None


@pytest.mark.parametrize("capturing", [False, True])
@pytest.mark.parametrize("sampled", [False, True])
def test_chunked_matches_the_reference(sampled, capturing, monkeypatch):
    inputs, targets, margins = make()
    rows = sample() if sampled else None
    expected = value_and_gradients(reference.mos_nll, inputs, targets, margins, UNEVEN, sample=rows)
    monkeypatch.setattr(chunked, "is_capturing", lambda x: capturing)
    options = {"sample": rows, "slab_bytes": 2 * 3 * 101 * 8}  # two tokens
    ours = value_and_gradients(chunked.mos_nll, inputs, targets, margins, UNEVEN, **options)
    for x, y in zip(ours, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-13)


def test_margins_of_zero_change_nothing():
    inputs, targets, margins = make()
    zero = value_and_gradients(mos_nll, inputs, targets, torch.zeros_like(margins), UNEVEN, impl="chunked")
    leaves = [x.requires_grad_() for x in inputs]
    nll = mos_nll(*leaves, targets, impl="chunked")
    assert torch.equal(zero[0], nll)
    for x, y in zip(zero[1:], torch.autograd.grad(nll, leaves, UNEVEN), strict=True):
        assert torch.equal(x, y)


def test_the_custom_operator_takes_margins():
    inputs, targets, margins = make()
    expected = value_and_gradients(chunked.mos_nll, inputs, targets, margins, UNEVEN)

    def operator(*args: Tensor, margins: Tensor) -> Tensor:
        return custom_op.mos_nll(*args, "chunked", torch.float64, None, margins=margins)

    for x, y in zip(value_and_gradients(operator, inputs, targets, margins, UNEVEN), expected, strict=True):
        assert torch.equal(x, y)


def check_kernels(shape, dtype: torch.dtype, scale: float, sampled: bool, **options) -> None:
    """Assert that value and gradients err at most twice as much as those of the reference in the same dtype."""
    inputs, targets, margins = make(shape, scale)
    inputs = [x.to(dtype).double() for x in inputs]
    upstream = torch.linspace(-1, 2, shape[0], dtype=torch.float64) / shape[0]
    upstream[::5] = 0
    arguments = (inputs, targets, margins, upstream)
    options |= {"device": DEVICE}
    rows = {"device": DEVICE, "sample": sample(shape[0], DEVICE) if sampled else None}
    truth = value_and_gradients(reference.mos_nll, *arguments, **rows)
    plain = value_and_gradients(reference.mos_nll, *arguments, dtype, **rows)
    ours = value_and_gradients(kernel.mos_nll, *arguments, dtype, **rows | options)
    for name, x, y, true in zip(["nll", "h", "log_pi", "weight", "bias"], ours, plain, truth, strict=True):
        error, allowed = (x.double() - true).norm(), (y.double() - true).norm()
        floor = torch.finfo(y.dtype).eps * true.norm() * 4
        assert error <= 2 * allowed + floor, f"{name}: {error:.3g} > 2 x {allowed:.3g} + {floor:.3g}"


@needs_kernels
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("scale", [1.0, 8.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_kernels_match_the_reference(dtype, scale, sampled):
    check_kernels(RAGGED, dtype, scale, sampled, configs=(SMALL, SMALL))


@pytest.mark.gpu
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_kernels_match_the_reference_at_ptb_size(dtype, sampled):
    check_kernels(PTB, dtype, 1.0, sampled)


@needs_kernels
def test_an_unknown_target_of_weight_zero_leaves_the_gradients_finite():
    inputs, targets, margins = make()
    targets[2] = 1000
    upstream = torch.ones(RAGGED[0])
    upstream[2] = 0
    options = {"device": DEVICE, "skip": False, "configs": (SMALL, SMALL)}
    nll, *gradients = value_and_gradients(kernel.mos_nll, inputs, targets, margins, upstream, torch.float32, **options)
    assert nll[2].isnan()
    assert all(x.isfinite().all() for x in gradients)


def test_margins_of_the_wrong_shape_are_named():
    inputs, targets, margins = make()
    with pytest.raises(ValueError, match="margins"):
        mos_nll(*inputs, targets, margins=margins[:, :1])
