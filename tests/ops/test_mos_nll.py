"""mos_nll: gradcheck and identities verify the reference; the chunked path must be as exact as the reference."""

import pytest
import torch
from torch import Tensor

from highrank.ops.mos_nll import chunked, custom_op, mos_nll, reference
from mos_nll_cases import ALIGNED, PTB, RAGGED, assert_as_exact, values_and_gradients
from triton_interpreter import DEVICE, needs_kernels

Inputs = tuple[Tensor, Tensor, Tensor, Tensor | None]


def make(shape: tuple[int, int, int, int], dtype=torch.float64, bias=True, seed=0) -> tuple[Inputs, Tensor]:
    n, k, d, v = shape
    g = torch.Generator().manual_seed(seed)

    def normal(*size, scale=1.0):
        return torch.randn(size, generator=g, dtype=torch.float64).mul(scale).to(dtype)

    h, log_pi = normal(n, k, d).tanh(), normal(n, k).log_softmax(-1)
    weight, b = normal(v, d, scale=0.5), normal(v) if bias else None
    targets = torch.randint(v, (n,), generator=g)
    return (h, log_pi, weight, b), targets


@pytest.mark.parametrize("bias", [True, False])
def test_the_reference_passes_gradcheck(bias):
    inputs, targets = make((4, 3, 5, 7), bias=bias)
    leaves = [x.requires_grad_() for x in inputs if x is not None]
    b = leaves[3] if bias else None
    assert torch.autograd.gradcheck(lambda h, p, w, *_: reference.mos_nll(h, p, w, b, targets), leaves)


@pytest.mark.parametrize("bias", [True, False])
def test_the_chunked_path_passes_gradcheck(bias):
    """gradcheck passes one-hot upstream gradients, so this covers rows that differ from the most frequent value."""
    inputs, targets = make((4, 3, 5, 7), bias=bias)
    leaves = [x.requires_grad_() for x in inputs if x is not None]
    b = leaves[3] if bias else None
    slab = 2 * 3 * 7 * 8  # two tokens
    assert torch.autograd.gradcheck(lambda h, p, w, *_: chunked.mos_nll(h, p, w, b, targets, slab_bytes=slab), leaves)


UPSTREAM = {
    "mean": lambda n: torch.full((n,), 1 / n),
    "each its own": lambda n: torch.linspace(-1, 2, n),
    "masked": lambda n: (torch.arange(n) % 3 != 0).float(),
    "zero": torch.zeros,
}


@pytest.mark.parametrize("upstream", UPSTREAM, ids=str)
@pytest.mark.parametrize("shape", [ALIGNED, RAGGED], ids=["aligned", "ragged"])
def test_chunked_is_as_exact_as_the_reference(shape, upstream):
    u = UPSTREAM[upstream](shape[0])
    inputs, targets = make(shape)
    truth = values_and_gradients(reference.mos_nll, inputs, targets, u.double())
    exact = values_and_gradients(chunked.mos_nll, inputs, targets, u.double(), slab_bytes=3 * shape[1] * shape[3] * 8)
    for a, t in zip(exact, truth, strict=True):
        torch.testing.assert_close(a, t, rtol=1e-12, atol=1e-13)

    low = tuple(x.float() if x is not None else None for x in inputs)
    truth = values_and_gradients(reference.mos_nll, tuple(x.double() for x in low), targets, u)
    same = values_and_gradients(reference.mos_nll, low, targets, u)
    got = values_and_gradients(chunked.mos_nll, low, targets, u, slab_bytes=3 * shape[1] * shape[3] * 4)
    assert_as_exact(got, same, truth)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_as_exact_as_the_reference(dtype):
    inputs, targets = make(RAGGED, dtype)
    u = torch.full((RAGGED[0],), 1.0)
    truth = values_and_gradients(reference.mos_nll, tuple(x.double() for x in inputs), targets, u)
    got = values_and_gradients(chunked.mos_nll, inputs, targets, u)
    same = values_and_gradients(reference.mos_nll, inputs, targets, u)
    assert got[0].dtype == torch.float32
    assert [g.dtype for g in got[1:]] == [dtype] * 4
    assert_as_exact(got, same, truth)


def test_a_bias_beside_half_precision_weights_keeps_its_digits():
    """The bias takes two columns of W."""
    bias = torch.tensor([1 / 3, -1234.567, -torch.inf, 0.0])
    w = chunked.with_bias_column(torch.ones(4, 5), bias, chunked.Sizes(torch.float16, torch.float32, tokens=1))
    assert w.shape == (4, 8)
    assert w.dtype == torch.float16
    torch.testing.assert_close(w[:, 5:].float().sum(1), bias, rtol=1e-6, atol=0)
    assert not w[:, 7].any()


def test_penn_treebank_sizes():
    n, k, d, v = 128, *PTB[1:]  # PTB's K, D and V; enough tokens for several slabs
    inputs, targets = make((n, k, d, v), torch.float32)
    u = torch.full((n,), 1 / n)
    truth = values_and_gradients(reference.mos_nll, tuple(x.double() for x in inputs), targets, u)
    same = values_and_gradients(reference.mos_nll, inputs, targets, u)
    assert_as_exact(values_and_gradients(chunked.mos_nll, inputs, targets, u), same, truth)


def test_one_component_is_cross_entropy():
    (h, _, w, b), targets = make((9, 1, 6, 11))
    nll = mos_nll(h, torch.zeros(9, 1, dtype=h.dtype), w, b, targets)
    expected = torch.nn.functional.cross_entropy(h[:, 0] @ w.T + b, targets, reduction="none")
    torch.testing.assert_close(nll, expected)


@pytest.mark.parametrize("impl", ["reference", "chunked"])
def test_components_may_be_permuted(impl):
    (h, log_pi, w, b), targets = make(RAGGED)
    order = torch.tensor([2, 0, 1])
    permuted = mos_nll(h[:, order], log_pi[:, order], w, b, targets, impl=impl)
    torch.testing.assert_close(permuted, mos_nll(h, log_pi, w, b, targets, impl=impl))


@pytest.mark.parametrize("impl", ["reference", "chunked"])
def test_probabilities_sum_to_one(impl):
    (h, log_pi, w, b), _ = make(RAGGED)
    v = w.shape[0]
    p = torch.stack([mos_nll(h, log_pi, w, b, torch.full((len(h),), y), impl=impl).neg().exp() for y in range(v)])
    torch.testing.assert_close(p.sum(0), torch.ones(len(h), dtype=p.dtype))


@pytest.mark.parametrize("offset", [1e4, -1e4])
def test_large_offsets_stay_finite(offset):
    (h, log_pi, w, b), targets = make(RAGGED, torch.float32)
    u = torch.ones(RAGGED[0])
    plain = values_and_gradients(chunked.mos_nll, (h, log_pi, w, b.round(decimals=1)), targets, u)
    shifted = values_and_gradients(chunked.mos_nll, (h, log_pi, w, b.round(decimals=1) + offset), targets, u)
    for a, s in zip(plain, shifted, strict=True):
        assert torch.isfinite(s).all()
        torch.testing.assert_close(a, s, rtol=2e-2, atol=2e-2)  # 1e4 leaves a float32 logit three decimals


def test_slab_size_does_not_change_the_result():
    inputs, targets = make(RAGGED)
    u = torch.linspace(0, 1, RAGGED[0], dtype=torch.float64)
    whole = values_and_gradients(chunked.mos_nll, inputs, targets, u)
    for tokens in (1, 2, 5):
        slabs = values_and_gradients(chunked.mos_nll, inputs, targets, u, slab_bytes=tokens * 3 * 101 * 8)
        for a, b in zip(slabs, whole, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


def test_context_vectors_may_have_any_strides():
    inputs, targets = make(RAGGED)
    u = torch.linspace(0, 1, RAGGED[0], dtype=torch.float64)
    turned = inputs[0].transpose(0, 1).contiguous().transpose(0, 1)
    expected = values_and_gradients(chunked.mos_nll, inputs, targets, u)
    for a, b in zip(values_and_gradients(chunked.mos_nll, (turned, *inputs[1:]), targets, u), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


def test_the_slab_is_bounded(monkeypatch):
    """No product is larger than the budget, in the forward pass or in a backward pass that revisits rows."""
    n, k, d, v = 64, 3, 8, 500
    inputs, targets = make((n, k, d, v), torch.float32)
    budget, seen = 5 * k * v * 4, []
    original = chunked._matmul

    def watched(a, b, sizes):
        result = original(a, b, sizes)
        seen.append(result.numel() * result.itemsize)
        return result

    monkeypatch.setattr(chunked, "_matmul", watched)
    values_and_gradients(chunked.mos_nll, inputs, targets, torch.linspace(0, 1, n), slab_bytes=budget)
    assert max(seen) <= budget
    assert len(seen) > 2 * n // 5  # both passes used slabs
    seen.clear()
    values_and_gradients(chunked.mos_nll, inputs, targets, torch.linspace(0, 1, n), slab_bytes=1)
    assert max(seen) == k * v * 4  # at least one token


def test_a_default_slab_is_at_least_a_quarter_of_the_weights():
    """Every slab reads W once."""
    h, w = torch.empty(1, 15, 1000, device="meta"), torch.empty(400_000, 1000, device="meta")
    assert chunked.Sizes.of(h, w, None, None).tokens == 400_000 * 1000 // (15 * 400_000 * 4)
    assert chunked.Sizes.of(h, w, None, 2 * 15 * 400_000 * 4).tokens == 2


def test_a_mean_is_not_visited_twice(monkeypatch):
    inputs, targets = make(RAGGED, torch.float32)
    visits = []
    monkeypatch.setattr(chunked, "_add_weight_gradient", lambda *a: visits.append(len(a[2])))
    values_and_gradients(chunked.mos_nll, inputs, targets, torch.full((7,), 1 / 7))
    bias = inputs[3].clone().requires_grad_()  # the embedding is frozen
    chunked.mos_nll(*inputs[:3], bias, targets).mean().backward()
    assert visits == []
    values_and_gradients(chunked.mos_nll, inputs, targets, torch.tensor([1.0, 1, 0, 1, 1, 0, 1]))
    values_and_gradients(chunked.mos_nll, inputs, targets, torch.tensor([0.0, 1, 1, 1, 1, 1, 1]))
    assert visits == [2, 1]  # only the masked tokens


@pytest.mark.parametrize("bias", [True, False])
def test_a_captured_forward_pass_leaves_the_weight_gradient_to_the_backward_pass(bias, monkeypatch):
    inputs, targets = make(RAGGED, bias=bias)
    u = torch.linspace(-1, 2, RAGGED[0], dtype=torch.float64)
    truth = values_and_gradients(reference.mos_nll, inputs, targets, u)
    monkeypatch.setattr(chunked, "is_capturing", lambda x: True)
    monkeypatch.setattr(torch.Tensor, "mode", None)  # the host must not read the upstream gradient
    for a, t in zip(values_and_gradients(chunked.mos_nll, inputs, targets, u), truth, strict=True):
        torch.testing.assert_close(a, t, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("needs", "computed"), [([0], (True, False)), ([1], (False, False)), ([3], (False, True))])
def test_gradients_of_frozen_inputs_are_not_computed(needs, computed, monkeypatch):
    inputs, targets = make(RAGGED)
    original, seen = chunked.forward, []
    monkeypatch.setattr(chunked, "forward", lambda *a: seen.append(a[-2:]) or original(*a))
    chunked.mos_nll(*[x.requires_grad_(i in needs) for i, x in enumerate(inputs)], targets)
    assert seen == [computed]


def test_zero_tokens_have_zero_gradients():
    inputs, targets = make((0, 3, 5, 7))
    nll, dh, _, dw, db = values_and_gradients(chunked.mos_nll, inputs, targets, torch.zeros(0))
    assert nll.shape == (0,)
    assert dh.shape == (0, 3, 5)
    assert not dw.any()
    assert not db.any()


def test_evaluation_computes_no_gradients(monkeypatch):
    inputs, targets = make(RAGGED)
    inputs = [x.requires_grad_() for x in inputs]
    expected, products, original = mos_nll(*inputs, targets), [], chunked._matmul
    monkeypatch.setattr(chunked, "_matmul", lambda *a: products.append(1) or original(*a))
    with torch.no_grad():
        assert torch.equal(mos_nll(*inputs, targets), expected)
    assert len(products) == 1


def test_an_out_of_range_target_raises():
    inputs, targets = make(RAGGED)
    for wrong in (-100, -1, 101):
        targets[3] = wrong
        for impl in ("reference", "chunked"):
            with pytest.raises(RuntimeError, match=f"index {wrong}"):
                mos_nll(*inputs, targets, impl=impl)


def test_autocast_on_a_cpu_computes_in_float32():
    inputs, targets = make(RAGGED, torch.float32)
    u = torch.linspace(-1, 2, RAGGED[0])
    expected = values_and_gradients(mos_nll, inputs, targets, u)
    with torch.autocast("cpu", torch.bfloat16):
        ours = values_and_gradients(mos_nll, inputs, targets, u)
    assert all(torch.equal(a, b) for a, b in zip(ours, expected, strict=True))


def test_autocast_chooses_the_precision_of_products():
    (h, log_pi, weight, bias), targets = make(RAGGED, torch.float32)
    with torch.autocast("cpu", torch.float16):
        ours = mos_nll(h, log_pi, weight, bias, targets, impl="reference")
    assert torch.equal(ours, reference.mos_nll(h.half(), log_pi, weight.half(), bias.half(), targets))


@needs_kernels
def test_autocast_chooses_the_precision_of_the_kernels_products():
    inputs, targets = make(RAGGED, torch.float32)
    with torch.autocast(DEVICE, torch.float16):
        ours = mos_nll(*[x.to(DEVICE) for x in inputs], targets.to(DEVICE), impl="triton").cpu()
    rounded = [x.half().float() for x in inputs[::2]]
    half = mos_nll(rounded[0], inputs[1], rounded[1], inputs[3], targets)
    assert (ours - half).abs().max() < (ours - mos_nll(*inputs, targets)).abs().max() / 4


@pytest.mark.parametrize("impl", ["chunked", pytest.param("triton", marks=needs_kernels)])
def test_options_reach_the_implementation(impl, monkeypatch):
    seen = {}
    where = {"chunked": "chunked", "triton": "kernel"}[impl]
    monkeypatch.setattr(f"highrank.ops.mos_nll.{where}.mos_nll", lambda *_, **options: seen.update(options))
    inputs, targets = make(RAGGED, torch.float32)
    with torch.autocast(DEVICE, torch.bfloat16):
        mos_nll(*[x.to(DEVICE) for x in inputs], targets.to(DEVICE), impl=impl, slab_bytes=12345)
    assert seen == {"compute_dtype": torch.bfloat16, "slab_bytes": 12345, "sample": None, "margins": None}


def test_the_reference_rounds_its_products_only():
    (h, log_pi, weight, bias), targets = make(RAGGED, torch.float16)
    logits = torch.nn.functional.linear(h, weight, bias).double()
    log_p = logits.log_softmax(-1)[torch.arange(7), :, targets]
    expected = -(log_pi.double() + log_p).logsumexp(-1)
    torch.testing.assert_close(
        reference.mos_nll(h, log_pi, weight, bias, targets).double(), expected, rtol=1e-6, atol=0
    )


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda i, y: ((i[0][:, 0], *i[1:]), y), "h"),
        (lambda i, y: ((i[0], i[1][:, :2], *i[2:]), y), "log_pi"),
        (lambda i, y: ((*i[:2], i[2][:, :5], i[3]), y), "weight"),
        (lambda i, y: ((*i[:3], i[3][:5]), y), "bias"),
        (lambda i, y: (i, y[:3]), "targets"),
    ],
    ids=["h", "log_pi", "weight", "bias", "targets"],
)
def test_a_tensor_of_the_wrong_shape_is_named(change, name):
    inputs, targets = change(*make(RAGGED))
    with pytest.raises(ValueError, match=f"^{name} "):
        mos_nll(*inputs, targets)


def test_an_unknown_impl_is_named():
    inputs, targets = make(RAGGED)
    with pytest.raises(ValueError, match="fast"):
        mos_nll(*inputs, targets, impl="fast")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [ALIGNED, RAGGED, (128, *PTB[1:])], ids=["aligned", "ragged", "corpus"])
def test_chunked_on_cuda(shape, dtype):
    inputs, targets = make(shape, dtype)
    inputs, targets = tuple(x.cuda() for x in inputs), targets.cuda()
    for u in (torch.full((shape[0],), 1 / shape[0]).cuda(), torch.linspace(-1, 2, shape[0]).cuda()):
        truth = values_and_gradients(reference.mos_nll, tuple(x.double() for x in inputs), targets, u)
        same = values_and_gradients(reference.mos_nll, inputs, targets, u)
        assert_as_exact(values_and_gradients(chunked.mos_nll, inputs, targets, u), same, truth)


def test_auto_chooses_kernels_for_half_precision_on_a_gpu(monkeypatch):
    monkeypatch.setattr(custom_op, "has_kernels", lambda device: True)
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert all(custom_op.uses_kernels("auto", gpu, dtype) for dtype in (torch.float16, torch.bfloat16))
    assert not any(custom_op.uses_kernels("auto", gpu, dtype) for dtype in (torch.float32, torch.float64))
    assert not custom_op.uses_kernels("auto", cpu, torch.bfloat16)
    assert custom_op.uses_kernels("triton", gpu, torch.float32)
    assert not custom_op.uses_kernels("chunked", gpu, torch.bfloat16)
    monkeypatch.setattr(custom_op, "has_kernels", lambda device: False)
    assert not custom_op.uses_kernels("auto", gpu, torch.bfloat16)
    with pytest.raises(ValueError, match="triton"):
        custom_op.uses_kernels("triton", gpu, torch.bfloat16)
