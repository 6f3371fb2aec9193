"""Margins: the target's logits are lowered by constants, which adversarial softmax computes."""

import pytest
import torch
from torch import Tensor

from highrank.ops.mos_nll import adversarial_margins, chunked, custom_op, kernel, mos_nll, reference
from mos_nll_cases import PTB, RAGGED, SMALL, UNEVEN, check_kernels, make, sample, values_and_gradients
from triton_interpreter import DEVICE, needs_kernels


def make_with_margins(shape=RAGGED, scale: float = 1.0) -> tuple[list[Tensor], Tensor, Tensor]:
    """Return inputs, targets and margins. Component 0 is sure of every other target."""
    inputs, targets = make(shape, scale)
    h, _, weight, bias = inputs
    targets[::2] = (h[:, 0] @ weight.T + bias).argmax(-1)[::2]
    margins = torch.randn(*shape[:2], generator=torch.Generator().manual_seed(2), dtype=torch.float64).abs()
    return inputs, targets, margins


def test_the_loss_is_that_of_lowered_logits():
    (h, log_pi, weight, bias), targets, margins = make_with_margins()
    p = torch.zeros(len(h), dtype=h.dtype)
    for k in range(h.shape[1]):
        logits = h[:, k] @ weight.T + bias
        logits[torch.arange(len(h)), targets] -= margins[:, k]
        p += log_pi[:, k].exp() * logits.softmax(-1)[torch.arange(len(h)), targets]
    for impl in ("reference", "chunked"):
        torch.testing.assert_close(mos_nll(h, log_pi, weight, bias, targets, impl=impl, margins=margins), -p.log())


def test_adversarial_margins_follow_their_definition():
    (h, _, weight, _), targets, _ = make_with_margins()
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
    inputs, targets, margins = make_with_margins((4, 3, 5, 7))
    options = {"slab_bytes": 2 * 3 * 7 * 8} if function is chunked.mos_nll else {}  # two tokens
    leaves = [x.requires_grad_() for x in inputs]
    assert torch.autograd.gradcheck(lambda *x: function(*x, targets, margins=margins, **options), leaves)


def test_margins_get_no_gradient():
    inputs, targets, margins = make_with_margins()
    margins.requires_grad_()
    for impl in ("reference", "chunked"):
        mos_nll(*(x.requires_grad_() for x in inputs), targets, impl=impl, margins=margins).sum().backward()
        assert margins.grad is None


@pytest.mark.parametrize("capturing", [False, True])
@pytest.mark.parametrize("sampled", [False, True])
def test_chunked_matches_the_reference(sampled, capturing, monkeypatch):
    inputs, targets, margins = make_with_margins()
    rows = sample(0.25) if sampled else None
    expected = values_and_gradients(reference.mos_nll, inputs, targets, UNEVEN, margins=margins, sample=rows)
    monkeypatch.setattr(chunked, "is_capturing", lambda x: capturing)
    options = {"sample": rows, "slab_bytes": 2 * 3 * 101 * 8}  # two tokens
    ours = values_and_gradients(chunked.mos_nll, inputs, targets, UNEVEN, margins=margins, **options)
    for x, y in zip(ours, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-13)


def test_margins_of_zero_change_nothing():
    inputs, targets, margins = make_with_margins()
    zero = values_and_gradients(mos_nll, inputs, targets, UNEVEN, impl="chunked", margins=torch.zeros_like(margins))
    leaves = [x.requires_grad_() for x in inputs]
    nll = mos_nll(*leaves, targets, impl="chunked")
    assert torch.equal(zero[0], nll)
    for x, y in zip(zero[1:], torch.autograd.grad(nll, leaves, UNEVEN), strict=True):
        assert torch.equal(x, y)


def test_the_custom_operator_takes_margins():
    inputs, targets, margins = make_with_margins()
    expected = values_and_gradients(chunked.mos_nll, inputs, targets, UNEVEN, margins=margins)

    def operator(*args: Tensor, margins: Tensor) -> Tensor:
        return custom_op.mos_nll(*args, "chunked", torch.float64, None, margins=margins)

    for x, y in zip(values_and_gradients(operator, inputs, targets, UNEVEN, margins=margins), expected, strict=True):
        assert torch.equal(x, y)


@needs_kernels
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("scale", [1.0, 8.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_kernels_match_the_reference(dtype, scale, sampled):
    inputs, targets, margins = make_with_margins(scale=scale)
    options = {"margins": margins.to(DEVICE), "sample": sample(0.25, device=DEVICE) if sampled else None}
    check_kernels(inputs, targets, dtype, configs=(SMALL, SMALL), **options)


@pytest.mark.gpu
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_kernels_match_the_reference_at_ptb_size(dtype, sampled):
    inputs, targets, margins = make_with_margins(PTB)
    rows = sample(0.25, PTB[0], DEVICE) if sampled else None
    check_kernels(inputs, targets, dtype, margins=margins.to(DEVICE), sample=rows)


@needs_kernels
def test_an_unknown_target_of_weight_zero_leaves_the_gradients_finite():
    inputs, targets, margins = make_with_margins()
    targets[2] = 1000
    upstream = torch.ones(RAGGED[0])
    upstream[2] = 0
    options = {"margins": margins.to(DEVICE), "skip": False, "configs": (SMALL, SMALL)}
    nll, *gradients = values_and_gradients(
        kernel.mos_nll, inputs, targets, upstream, dtype=torch.float32, device=DEVICE, **options
    )
    assert nll[2].isnan()
    assert all(x.isfinite().all() for x in gradients)


def test_margins_of_the_wrong_shape_are_named():
    inputs, targets, margins = make_with_margins()
    with pytest.raises(ValueError, match="margins"):
        mos_nll(*inputs, targets, margins=margins[:, :1])
