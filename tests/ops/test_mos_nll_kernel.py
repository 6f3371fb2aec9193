"""The Triton kernels against float64 truth: on a GPU if there is one, else in Triton's interpreter."""

import pytest
import torch
from torch import Tensor

from highrank.ops.mos_nll import kernel, reference
from highrank.ops.mos_nll.kernel import operands, plan
from mos_nll_cases import PTB, RAGGED, SMALL, values_and_gradients
from triton_interpreter import DEVICE, needs_kernels

pytestmark = needs_kernels
CUDA = DEVICE == "cuda"
ALIGNED = (16, 2, 32, 64)  # N, K, D, V
# For float16 only: bfloat16 is wrong in the interpreter.
HALF_SMALL = SMALL._replace(tma=not CUDA or torch.cuda.get_device_capability() >= (9, 0))
Problem = tuple[list[Tensor | None], Tensor, Tensor]


def problem(shape: tuple[int, int, int, int], dtype: torch.dtype, *, bias: bool = True, seed: int = 0) -> Problem:
    """Return [h, log_pi, weight, bias] in float64, exact in `dtype`; targets; upstream gradients of every sign."""
    n, k, d, v = shape
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator)

    inputs = [normal(n, k, d).tanh(), normal(n, k).log_softmax(-1), normal(v, d) / d**0.5 * 2, normal(v)]
    targets = torch.randint(v, (n,), generator=generator)
    upstream = normal(n) / max(n, 1)
    upstream[::5] = 0
    rounded = [x.to(dtype).double().to(DEVICE) for x in inputs]
    return [*rounded[:3], rounded[3] if bias else None], targets.to(DEVICE), upstream.to(DEVICE)


def check(inputs, targets, upstream, dtype: torch.dtype, **options) -> list[Tensor]:
    """Assert that value and gradients err at most twice as much as those of the reference in the same dtype."""
    truth = values_and_gradients(reference.mos_nll, inputs, targets, upstream, dtype=torch.float64)
    plain = values_and_gradients(reference.mos_nll, inputs, targets, upstream, dtype=dtype)

    ours = values_and_gradients(kernel.mos_nll, inputs, targets, upstream, dtype=dtype, **options)
    assert ours[0].dtype == torch.float32
    for name, x, y, true in zip(["nll", "h", "log_pi", "weight", "bias"], ours, plain, truth, strict=False):
        assert (x.shape, x.dtype) == (true.shape, y.dtype), name
        assert x.isfinite().all(), name
        error, allowed = (x.double() - true).abs().amax(), (y.double() - true).abs().amax()
        assert error <= 2 * allowed + 1e-6 * true.abs().amax() + 1e-9, f"{name}: {error:.3g} > 2 x {allowed:.3g}"
    return ours


def small(dtype: torch.dtype) -> dict:
    config = SMALL if dtype == torch.float32 else HALF_SMALL
    return {"configs": (config, config)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [ALIGNED, RAGGED])
def test_matches_the_reference(shape, bias, dtype):
    check(*problem(shape, dtype, bias=bias), dtype, **small(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_default_configuration_matches_the_reference(dtype):
    check(*problem(RAGGED, dtype), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_single_token_matches_the_reference(dtype):
    inputs, targets, _ = problem((1, 3, 37, 101), dtype)
    check(inputs, targets, torch.ones(1, device=DEVICE), dtype)


@pytest.mark.parametrize("k", [1, 3])
def test_targets_and_bias_need_not_be_contiguous(k):
    inputs, targets, _ = problem((7, k, 37, 101), torch.float32)
    bias, targets = (torch.stack([x, torch.zeros_like(x)], dim=1)[:, 0] for x in (inputs[3].float(), targets))
    upstream = torch.linspace(1, 2, 7, device=DEVICE)  # no row is left out, or the others would be copied
    check([*inputs[:3], bias], targets, upstream, torch.float32)


def test_tiles_may_be_stored_in_halves():
    config = HALF_SMALL._replace(halves=True)
    check(*problem(RAGGED, torch.float16), torch.float16, configs=(config, config))


def test_one_component_is_cross_entropy():
    inputs, targets, upstream = problem((9, 1, 16, 40), torch.float32)
    nll, *_ = check(inputs, targets, upstream, torch.float32, **small(torch.float32))
    h, log_pi, weight, bias = [x.float() for x in inputs]
    logits = torch.nn.functional.linear(h[:, 0], weight, bias)
    expected = torch.nn.functional.cross_entropy(logits, targets, reduction="none") - log_pi[:, 0]
    torch.testing.assert_close(nll, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_tiny_upstream_gradients_do_not_underflow(dtype):
    inputs, targets, upstream = problem(RAGGED, dtype)
    leaves = [x.to(dtype) for x in inputs]
    leaves[2] = leaves[2].float().requires_grad_()  # the gradient of a float32 parameter, products in float16

    def gradient(u: Tensor) -> Tensor:
        nll = kernel.mos_nll(*leaves, targets, compute_dtype=dtype, **small(dtype))
        return torch.autograd.grad(nll, leaves[2], u.float())[0]

    full, tiny = gradient(upstream), gradient(upstream * 1e-12)
    assert full.dtype == torch.float32
    torch.testing.assert_close(tiny * 1e12, full)


@pytest.mark.parametrize("offset", [1e4, -1e4])
def test_large_common_offsets_stay_finite(offset):
    inputs, targets, upstream = problem(RAGGED, torch.float32)
    shifted = [*inputs[:3], (inputs[3] + offset).float().double()]
    check(shifted, targets, upstream, torch.float32, **small(torch.float32))


def test_words_may_be_masked_by_an_infinite_bias():
    inputs, targets, upstream = problem(RAGGED, torch.float32)
    inputs[3][:40] = -torch.inf  # a whole first tile of words
    check(inputs, targets.clamp(min=40), upstream, torch.float32, **small(torch.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_skipping_rows_changes_nothing(dtype):
    inputs, targets, upstream = problem((12, 4, 24, 50), dtype)
    log_pi = inputs[1]
    log_pi[:, 1:3] -= 60.0  # responsibilities far below 2^-24
    log_pi[0] = 0.0
    skipped = check(inputs, targets, upstream, dtype, **small(dtype))
    visited = check(inputs, targets, upstream, dtype, skip=False, **small(dtype))
    assert (skipped[1][1:, 1:3] == 0).all()  # they were skipped
    for x, y in zip(skipped, visited, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("d", [24, 27])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_rows_are_padded_with_ones(d, dtype):
    h = torch.rand(3, d, dtype=dtype, device=DEVICE)
    rows = operands.padded_rows(h, dtype, ones=True)
    assert rows.shape[1] > d
    assert rows.shape[1] * rows.itemsize % 16 == 0
    assert torch.equal(rows[:, :d], h)
    assert (rows[:, d:] == 1).all()
    assert operands.padded_rows(h[:, :24].contiguous(), dtype, ones=False).shape[1] == 24  # without a copy


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_bias_gradient_can_be_computed_alone(dtype):
    """It comes from a column of ones, whether or not the rows of h are already aligned."""
    for d in (24, 37):
        inputs, targets, upstream = problem((7, 3, d, 101), dtype)
        truth = values_and_gradients(reference.mos_nll, inputs, targets, upstream)[-1]
        bias = inputs[3].to(dtype).requires_grad_()
        nll = kernel.mos_nll(*[x.to(dtype) for x in inputs[:3]], bias, targets, **small(dtype))
        (db,) = torch.autograd.grad(nll, bias, upstream.float())
        assert (db - truth).abs().amax() <= (1e-6 if dtype == torch.float32 else 2e-3) * truth.abs().amax()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("word", [0, 31, 32, 63, 64, 95, 96, 100])  # slabs of 32 words: first and last of each
def test_targets_at_the_edges_of_slabs_are_exact(word, dtype):
    inputs, targets, upstream = problem(RAGGED, dtype)
    targets[1:3] = word
    check(inputs, targets, upstream, dtype, **small(dtype))


@pytest.mark.parametrize("margin", [4.0, 8.0, 12.0])
def test_gradients_of_nearly_certain_targets_are_exact(margin):
    """For 1 - p down to 1e-4, p - 1 computed from a rounded p would lose its digits."""
    inputs, targets, _ = problem((6, 2, 16, 40), torch.float16, seed=1)
    inputs[0].zero_()  # logits are the biases
    inputs[3].mul_(0.125).clamp_(-1, 1)[targets[0]] = margin
    inputs[3] = inputs[3].half().double()
    targets = targets[:1].expand(6).contiguous()
    upstream = torch.ones(6, device=DEVICE)
    truth = values_and_gradients(reference.mos_nll, inputs, targets, upstream)[-1]
    ours = check(inputs, targets, upstream, torch.float16, **small(torch.float16))[-1]
    assert abs(ours[targets[0]] - truth[targets[0]]) <= 2e-3 * abs(truth[targets[0]])


def test_a_token_of_zero_weight_has_no_gradient_even_if_its_target_is_out_of_range():
    inputs, targets, upstream = problem(RAGGED, torch.float32)
    upstream[2] = 0
    options = {"dtype": torch.float32, **small(torch.float32)}
    truth = values_and_gradients(kernel.mos_nll, inputs, targets, upstream, **options)
    targets[2] = -100
    for skip in (True, False):
        ours = values_and_gradients(kernel.mos_nll, inputs, targets, upstream, skip=skip, **options)
        for x, true in zip(ours[1:], truth[1:], strict=True):
            torch.testing.assert_close(x, true)


def test_float32_parameters_with_half_precision_products():
    inputs, targets, upstream = problem(RAGGED, torch.float16)
    truth = values_and_gradients(reference.mos_nll, inputs, targets, upstream)
    dtypes = [torch.float16, torch.float32, torch.float32, torch.float32]
    mixed = [x.to(dtype) for x, dtype in zip(inputs, dtypes, strict=True)]
    options = {"compute_dtype": torch.float16, **small(torch.float16)}
    ours = values_and_gradients(kernel.mos_nll, mixed, targets, upstream, **options)
    assert [x.dtype for x in ours] == [torch.float32, *dtypes]
    for x, true in zip(ours, truth, strict=True):
        assert (x.double() - true).abs().amax() <= 2e-3 * true.abs().amax()


def test_zero_tokens_have_zero_gradients():
    inputs, targets, upstream = problem((0, 3, 37, 101), torch.float32)
    nll, dh, _, *rest = values_and_gradients(kernel.mos_nll, inputs, targets, upstream, dtype=torch.float32)
    assert (nll.shape, dh.shape) == ((0,), (0, 3, 37))
    assert all((x == 0).all() for x in rest)


def test_zero_upstream_gradients_give_zero_gradients():
    inputs, targets, upstream = problem(RAGGED, torch.float16)
    gradients = values_and_gradients(kernel.mos_nll, inputs, targets, 0 * upstream, dtype=torch.float16)[1:]
    assert all((x == 0).all() for x in gradients)


@pytest.mark.parametrize("word", [-100, 101, 2**40])
def test_a_target_outside_the_vocabulary_gives_nan(word):
    inputs, targets, upstream = problem(RAGGED, torch.float32)
    targets[2], upstream[2] = word, 0
    leaves = [x.float().requires_grad_() for x in inputs]
    nll = kernel.mos_nll(*leaves, targets, **small(torch.float32))
    assert nll.isnan().nonzero().flatten().tolist() == [2]
    gradients = torch.autograd.grad(nll, [leaves[0], *leaves[2:]], upstream.float())
    assert all(x.isfinite().all() for x in gradients)  # its upstream gradient is zero


def test_only_required_gradients_are_computed():
    inputs, targets, _ = problem(RAGGED, torch.float32)
    h, log_pi, weight, bias = [x.float() for x in inputs]
    upstream = torch.ones(7, device=DEVICE)
    expected = values_and_gradients(reference.mos_nll, inputs, targets, upstream, dtype=torch.float32)
    kernel.mos_nll(h.requires_grad_(), log_pi, weight, bias, targets, **small(torch.float32)).sum().backward()
    torch.testing.assert_close(h.grad, expected[1])
    assert weight.grad is None


def test_float64_raises():
    inputs, targets, _ = problem(RAGGED, torch.float32)
    with pytest.raises(ValueError, match="float64"):
        kernel.mos_nll(*inputs, targets)


def test_every_tile_is_assigned_once():
    for row_blocks, tiles, slots in [(99, 79, 264), (1, 1, 132), (3, 40, 1), (124, 260, 264)]:
        each, _ = plan.tiles_each(row_blocks, tiles, slots)
        assert 1 <= each <= tiles
        assert 1 <= plan.slab_tiles(row_blocks, tiles, 50, slots) <= min(tiles, 50)
    assert plan.slab_tiles(124, 260, 10, 264) == 10  # 26 equal slabs of nearly five full rounds


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [ALIGNED, RAGGED, PTB])
def test_the_kernels_on_the_gpu_match_the_reference(shape, dtype):
    check(*problem(shape, dtype), dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("tma", [True, False])
def test_tiles_loaded_with_and_without_tma_match_the_reference(tma):
    if tma and torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("no tensor memory accelerator")
    config = plan.Config(128, 128, 32, num_warps=8, num_stages=3, tma=tma, flatten=True, programs=1)
    check(*problem((90, 5, 300, 3001), torch.bfloat16), torch.bfloat16, configs=(config, config))


@pytest.mark.gpu
def test_the_same_inputs_give_the_same_bits():
    inputs, targets, upstream = problem(PTB, torch.bfloat16)
    first, second = (
        values_and_gradients(kernel.mos_nll, inputs, targets, upstream, dtype=torch.bfloat16) for _ in range(2)
    )
    assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))


@pytest.mark.gpu
def test_a_cuda_graph_replays_loss_and_gradients():
    inputs, targets, upstream = problem((64, 5, 96, 1003), torch.bfloat16)
    upstream[32:] = 0
    leaves = [x.to(torch.bfloat16).requires_grad_() for x in inputs]
    upstream = upstream.float()

    def step() -> list[Tensor]:
        nll = kernel.mos_nll(*leaves, targets)
        gradients = torch.autograd.grad(nll, leaves, upstream)
        # Detached: otherwise the result keeps the leaves' autograd nodes of the warm-up. They belong to the stream
        # on which they were created, and autograd warns when the capture's stream uses them.
        return [nll.detach(), *gradients]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            eager = step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        captured = step()
    graph.replay()
    torch.cuda.synchronize()
    for x, y in zip(captured, eager, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-2, atol=1e-5)  # rows in another order, results rounded to bfloat16
