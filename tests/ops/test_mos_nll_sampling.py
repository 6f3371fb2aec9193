"""The sampled backward pass: unbiased weights of rows, and every implementation against the reference."""

from functools import partial

import pytest
import torch
from torch import Tensor

from highrank.ops.mos_nll import chunked, kernel, mos_nll, reference
from highrank.ops.mos_nll.sampling import RowSample
from mos_nll_cases import PTB, RAGGED, SMALL, UNEVEN, check_kernels, make, sample, values_and_gradients
from triton_interpreter import DEVICE, needs_kernels

EPS = [1 / 32, 1 / 8, 1.0]


@pytest.mark.parametrize("eps", [1 / 64, *EPS])
def test_the_mean_weight_over_all_draws_is_the_responsibility(eps):
    r = torch.randn(20, 15, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).mul(3).softmax(-1)
    draws = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    weights = RowSample(eps, draws.repeat(20)).weights(r.repeat_interleave(1000, dim=0))
    torch.testing.assert_close(weights.view(20, 1000, 15).mean(1), r, rtol=0, atol=2e-3 * eps)


def test_responsibilities_from_eps_on_are_kept_as_they_are():
    r = torch.tensor([[0.5, 0.25, 0.2, 0.05], [torch.nan, torch.nan, 0.0, 0.1]])
    weights = RowSample(0.2, torch.tensor([0.0, 0.99])).weights(r)
    assert weights[0].tolist() == [0.5, 0.25, r[0, 2], 0.0]
    assert weights[1].isnan().tolist() == [True, True, False, False]
    assert weights[1, 2:].tolist() == [0.0, pytest.approx(0.2)]


def test_a_token_keeps_its_expected_number_of_rows_rounded_up_or_down():
    r = torch.randn(500, 15).mul(2).softmax(-1)
    for eps in EPS:
        expected = (r / eps).clamp(max=1).sum(1)
        kept = (RowSample(eps, torch.rand(500)).weights(r) > 0).sum(1)
        assert ((kept - expected).abs() < 1 + 1e-4).all()
    assert (kept == 1).all()  # eps = 1


def test_the_mean_gradient_over_many_draws_is_the_exact_one():
    """Every entry of dh, dW and db lies within five standard errors, and on average as near as chance has it."""
    torch.manual_seed(0)
    inputs, targets = make((5, 4, 6, 11))
    exact = values_and_gradients(mos_nll, inputs, targets)
    runs = [values_and_gradients(mos_nll, inputs, targets, sample_below=0.5) for _ in range(2000)]
    for i in (1, 3, 4):
        draws = torch.stack([run[i] for run in runs])
        error = draws.std(0) / len(runs) ** 0.5
        noisy = error > 1e-9
        assert noisy.any()
        z = ((draws.mean(0) - exact[i]) / error)[noisy]
        assert z.abs().max() < 5
        assert 0.5 < z.square().mean() < 1.5


@pytest.mark.parametrize("impl", ["reference", "chunked"])
def test_the_loss_and_the_gradient_of_the_prior_stay_exact(impl):
    inputs, targets = make()
    exact = values_and_gradients(mos_nll, inputs, targets, UNEVEN, impl=impl)
    sampled = values_and_gradients(mos_nll, inputs, targets, UNEVEN, impl=impl, sample_below=1.0)
    assert torch.equal(sampled[0], exact[0])
    assert torch.equal(sampled[2], exact[2])
    assert not torch.allclose(sampled[3], exact[3])


@pytest.mark.parametrize("impl", ["reference", "chunked"])
def test_a_tiny_eps_gives_the_exact_gradients(impl):
    inputs, targets = make()
    exact = values_and_gradients(mos_nll, inputs, targets, UNEVEN, impl=impl)
    sampled = values_and_gradients(mos_nll, inputs, targets, UNEVEN, impl=impl, sample_below=1e-30)
    for x, y in zip(sampled, exact, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("capturing", [False, True])
@pytest.mark.parametrize("upstream", [None, UNEVEN, (UNEVEN > 0).double()], ids=["mean", "each its own", "masked"])
@pytest.mark.parametrize("eps", EPS)
def test_chunked_matches_the_reference(eps, upstream, capturing, monkeypatch):
    inputs, targets = make()
    expected = values_and_gradients(reference.mos_nll, inputs, targets, upstream, sample=sample(eps))
    monkeypatch.setattr(chunked, "is_capturing", lambda x: capturing)
    slab_bytes = 2 * 3 * 101 * 8  # two tokens
    ours = values_and_gradients(chunked.mos_nll, inputs, targets, upstream, sample=sample(eps), slab_bytes=slab_bytes)
    for x, y in zip(ours, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-13)


def test_chunked_multiplies_kept_rows_only(monkeypatch):
    inputs, targets = make()
    heights = []
    original = chunked._matmul
    monkeypatch.setattr(chunked, "_matmul", lambda a, b, sizes: heights.append(len(a)) or original(a, b, sizes))
    values_and_gradients(chunked.mos_nll, inputs, targets, sample=sample(1.0))
    assert heights == [21, 7]  # logits of every row, dh of one row per token


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("shape", [RAGGED, (16, 15, 32, 64)], ids=["ragged", "aligned"])
@pytest.mark.parametrize("eps", [1e-30, *EPS])
def test_the_kernels_match_the_reference(eps, shape, dtype):
    configs = (SMALL, SMALL._replace(tma=dtype == torch.float16))
    check_kernels(*make(shape), dtype, floor=1, configs=configs, sample=sample(eps, shape[0], DEVICE))


@needs_kernels
@pytest.mark.parametrize("needed", [0, 2, 3], ids=["h", "weight", "bias"])
def test_the_kernels_compute_one_gradient_alone(needed):
    inputs, targets = make()
    options = {"sample": sample(1 / 8, device=DEVICE)}
    leaves = [x.to(DEVICE).requires_grad_(i == needed) for i, x in enumerate(inputs)]
    expected = torch.autograd.grad(reference.mos_nll(*leaves, targets.to(DEVICE), **options).sum(), leaves[needed])
    leaves = [x.detach().float().requires_grad_(i == needed) for i, x in enumerate(leaves)]
    nll = kernel.mos_nll(*leaves, targets.to(DEVICE), configs=(SMALL, SMALL), **options)
    ours = torch.autograd.grad(nll.sum(), leaves[needed])
    torch.testing.assert_close(ours[0].double(), expected[0], rtol=1e-4, atol=1e-5)


@needs_kernels
def test_zero_tokens_have_zero_gradients():
    inputs, targets = make((0, 3, 37, 101))
    ours = values_and_gradients(
        kernel.mos_nll, inputs, targets, dtype=torch.float32, device=DEVICE, sample=sample(1 / 8, 0, DEVICE)
    )
    assert not any(x.any() for x in ours)


def test_a_compiled_loss_samples_too():
    torch.compiler.reset()
    inputs, targets = make()
    compiled = torch.compile(partial(mos_nll, sample_below=0.5), backend="aot_eager", fullgraph=True)
    torch.manual_seed(0)
    ours = values_and_gradients(compiled, inputs, targets)
    torch.manual_seed(0)
    for x, y in zip(ours, values_and_gradients(mos_nll, inputs, targets, sample_below=0.5), strict=True):
        torch.testing.assert_close(x, y)


def test_evaluation_draws_nothing():
    inputs, targets = make()
    before = torch.get_rng_state()
    with torch.no_grad():
        mos_nll(*inputs, targets, sample_below=0.5)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("value", [0.0, -0.1, 1.5, float("nan")])
def test_a_probability_out_of_range_raises(value):
    inputs, targets = make()
    with pytest.raises(ValueError, match="sample_below"):
        mos_nll(*inputs, targets, sample_below=value)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [RAGGED, (300, 7, 900, 5003)], ids=["ragged", "wide"])
@pytest.mark.parametrize("eps", [1e-30, 1 / 32, 1.0])
def test_the_kernels_on_the_gpu_match_the_reference(eps, shape, dtype):
    check_kernels(*make(shape), dtype, sample=sample(eps, shape[0], DEVICE))


# Not in float32, where the kernels are not used by default: they add up 12,600 rows one after the other, and the bias's
# gradient then errs by 3e-6 of its norm, ten times as much as the library's sum in blocks.
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("eps", [1e-30, 1 / 32, 1.0])
def test_the_kernels_on_the_gpu_match_the_reference_at_the_size_of_ptb(eps, dtype):
    check_kernels(*make(PTB), dtype, sample=sample(eps, PTB[0], DEVICE))


@pytest.mark.gpu
def test_a_cuda_graph_draws_new_rows_in_every_replay():
    inputs, targets = make((64, 5, 96, 1003))
    leaves = [x.to("cuda", torch.bfloat16).requires_grad_() for x in inputs]
    targets = targets.cuda()

    def weight_gradient(**options) -> Tensor:
        return torch.autograd.grad(mos_nll(*leaves, targets, **options).mean(), leaves[2])[0]

    exact = weight_gradient().double()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            weight_gradient(sample_below=0.5)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        captured = weight_gradient(sample_below=0.5)
    draws = []
    for _ in range(400):
        graph.replay()
        draws.append(captured.double())
    assert not torch.equal(draws[0], draws[1])
    mean = torch.stack(draws).mean(0)
    deviation = torch.stack([(draw - exact).norm() for draw in draws]).mean()
    assert (mean - exact).norm() < 2 * deviation / 400**0.5 + 4e-3 * exact.norm()  # bfloat16 rounds each draw
