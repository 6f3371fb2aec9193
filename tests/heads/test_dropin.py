"""Heads inside other people's models: compiled, exported, copied, frozen, checkpointed."""

import copy
import io
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from highrank import MoCHead, MoSHead, SoftmaxHead
from highrank.ops.mos_nll import custom_op, mos_nll, reference
from triton_interpreter import needs_kernels

IN, D, V, K = 8, 6, 23, 3
HEADS = [SoftmaxHead, MoCHead, MoSHead]
both = pytest.mark.parametrize("impl", ["chunked", pytest.param("triton", marks=needs_kernels)])


def make(kind=MoSHead, **options):
    return kind(IN, V, **options) if kind is SoftmaxHead else kind(IN, D, V, K, **options)


def batch(*leading: int) -> tuple[Tensor, Tensor]:
    return torch.randn(*leading, IN), torch.randint(V, leading)


def gradients(head: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    head.zero_grad()
    loss.backward()
    return {key: p.grad.clone() for key, p in head.named_parameters() if p.grad is not None}


def truth(head: nn.Module, g: Tensor, targets: Tensor, **options) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss and the gradients of its mean, by the reference in float64."""
    exact = copy.deepcopy(head).double()
    exact.impl = "reference"
    nll = exact.nll(g.double(), targets, **options)
    return nll.detach(), gradients(exact, nll.mean())


def assert_close(ours: dict[str, Tensor], exact: dict[str, Tensor], rtol: float = 1e-4, atol: float = 1e-6) -> None:
    assert ours.keys() == exact.keys()
    for key, x in ours.items():
        torch.testing.assert_close(
            x.double(), exact[key].double(), rtol=rtol, atol=atol, msg=lambda m, key=key: f"{key}: {m}"
        )


@pytest.mark.parametrize("kind", HEADS)
def test_a_compiled_head_is_one_graph_with_the_same_loss_and_gradients(kind):
    torch.compiler.reset()  # otherwise heads of other tests count as recompilations
    head = make(kind, scale=1.0)
    head.bias.data.normal_()
    (g, targets), padded = batch(4, 5), torch.randint(V, (4, 5))
    padded[1, 2:] = -100
    compiled = torch.compile(head, backend="aot_eager", fullgraph=True)
    for y, options in ((targets, {}), (padded, {"ignore_index": -100})):
        nll, expected = truth(head, g, y, **options)
        ours = compiled(g, y, **options)
        torch.testing.assert_close(ours.double(), nll)
        assert_close(gradients(head, ours.mean()), expected)
    with torch.no_grad():
        torch.testing.assert_close(compiled(g, targets), head.nll(g, targets))


def test_a_compiled_head_takes_other_lengths_and_autocast():
    torch.compiler.reset()
    head = make(scale=1.0)
    compiled = torch.compile(head, backend="aot_eager", fullgraph=True, dynamic=True)
    for length in (5, 7, 3):
        g, targets = batch(4, length)
        nll, expected = truth(head, g, targets)
        ours = compiled(g, targets)
        torch.testing.assert_close(ours.double(), nll)
        assert_close(gradients(head, ours.mean()), expected)
    with torch.autocast("cpu", torch.bfloat16):
        ours, eager = compiled(g, targets), head(g, targets)
    assert_close(gradients(head, ours.mean()), gradients(head, eager.mean()), rtol=0, atol=0)


@pytest.mark.parametrize("method", ["nll", "log_prob"])
def test_a_head_is_exported_for_any_batch(method):
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = make()

        def forward(self, g: Tensor, targets: Tensor) -> Tensor:
            return self.head.nll(g, targets) if method == "nll" else self.head.log_prob(g)

    model, any_batch = Model().eval(), {0: torch.export.Dim("batch")}
    program = torch.export.export(model, batch(4, 5), dynamic_shapes=(any_batch, any_batch))
    g, targets = batch(2, 5)
    torch.testing.assert_close(program.module()(g, targets), model(g, targets))


def op_inputs(dtype=torch.float32, bias=True, n=7) -> tuple[list[Tensor | None], Tensor]:
    h, log_pi = torch.randn(n, K, D).tanh(), torch.randn(n, K).log_softmax(-1)
    inputs = [x.to(dtype).requires_grad_() for x in (h, log_pi, torch.randn(V, D), torch.randn(V))]
    return [*inputs[:3], inputs[3] if bias else None], torch.randint(V, (n,))


@both
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("upstream", [torch.ones(7), torch.linspace(-1, 2, 7)], ids=["mean", "per token"])
def test_the_custom_operator_equals_eager_mode(impl, bias, upstream):
    inputs, targets = op_inputs(bias=bias)
    leaves = [x for x in inputs if x is not None]
    plain = mos_nll(*inputs, targets, impl=impl)
    ours = custom_op.mos_nll(*inputs, targets, impl, torch.float32, None)
    assert torch.equal(ours, plain)
    expected = torch.autograd.grad(plain, leaves, upstream)
    for x, y in zip(torch.autograd.grad(ours, leaves, upstream), expected, strict=True):
        assert torch.equal(x, y)


@both
@pytest.mark.parametrize("needed", [[0, 1, 2, 3], [0], [1, 3], []], ids=str)
def test_the_custom_operator_passes_opcheck(impl, needed):
    """opcheck compares shapes, dtypes, strides, aliasing and gradients with what the operator declares."""
    inputs, targets = op_inputs()
    for i in range(4):
        inputs[i].requires_grad_(i in needed)
    needs = [i in needed for i in range(4)]
    for margins, draws, eps in ((None, None, None), (torch.rand(len(targets), K), torch.rand(len(targets)), 0.5)):
        arguments = (*inputs, targets, margins, draws, eps, impl, torch.float32, 4 * K * V * 4, needs)
        torch.library.opcheck(custom_op._forward, arguments)


@both
def test_the_custom_operator_takes_zero_tokens_and_a_single_word(impl):
    for n, v in ((0, V), (5, 1)):
        (h, log_pi, *_), _ = op_inputs(n=n)
        inputs = [h, log_pi, torch.randn(v, D, requires_grad=True), torch.zeros(v, requires_grad=True)]
        nll = custom_op.mos_nll(*inputs, torch.zeros(n, dtype=torch.long), impl, torch.float32, None)
        dw, db = torch.autograd.grad(nll.sum(), inputs[2:])
        assert dw.abs().max() < 1e-6
        assert db.abs().max() < 1e-6


@both
def test_a_second_derivative_raises_instead_of_being_wrong(impl):
    inputs, targets = op_inputs()
    for loss in (
        mos_nll(*inputs, targets, impl=impl).sum(),
        custom_op.mos_nll(*inputs, targets, impl, torch.float32, None).sum(),
    ):
        with pytest.raises(RuntimeError, match="reference"):
            torch.autograd.grad(loss, inputs[0], create_graph=True)
    (dh,) = torch.autograd.grad(mos_nll(*inputs, targets, impl="reference").sum(), inputs[0], create_graph=True)
    assert torch.autograd.grad(dh.pow(2).sum(), inputs[0])[0].any()


@pytest.mark.parametrize("reentrant", [True, False])
def test_activation_checkpointing_changes_nothing(reentrant):
    head = make()
    g, targets = batch(4, 5)
    g.requires_grad_()
    ours = gradients(head, checkpoint(head.nll, g, targets, use_reentrant=reentrant).mean())
    assert_close(ours, gradients(head, head.nll(g, targets).mean()), rtol=0, atol=0)


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32], ids=str)
def test_targets_may_have_any_integer_dtype(kind, dtype):
    head = make(kind)
    g, targets = batch(4, 5)
    assert torch.equal(head.nll(g, targets.to(dtype)), head.nll(g, targets))
    expected = head.nll(g, targets, ignore_index=3)
    assert torch.equal(head.nll(g, targets.to(dtype), ignore_index=3), expected)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float64, torch.complex64], ids=str)
def test_targets_must_be_integers(dtype):
    with pytest.raises(ValueError, match=str(dtype)):
        make().nll(torch.randn(4, IN), torch.zeros(4, dtype=dtype))


@pytest.mark.parametrize("kind", HEADS)
def test_calling_a_head_ignores_padding_and_returns_no_view(kind):
    head = make(kind)
    g, targets = batch(4, 5)
    targets[2, 1:] = -100
    assert torch.equal(head(g, targets, ignore_index=-100), head.nll(g, targets, ignore_index=-100))
    assert not head(*batch(4, 5))._is_view()  # FSDP2 warns about views


@pytest.mark.parametrize("kind", HEADS)
def test_parameters_can_be_initialised_after_the_meta_device(kind):
    with torch.device("meta"):
        head = make(kind)
        assert head.nll(torch.randn(4, IN), torch.zeros(4, dtype=torch.long)).shape == (4,)
        assert head.log_prob(torch.randn(4, IN)).shape == (4, V)
    head.to_empty(device="cpu")
    for p in head.parameters():
        p.data.fill_(torch.nan)
    for module in head.modules():
        if list(module.parameters(recurse=False)):
            module.reset_parameters()
    assert all(p.isfinite().all() for p in head.parameters())
    assert -0.1 <= head.weight.min() < -0.09
    assert 0.09 < head.weight.max() <= 0.1
    assert not head.bias.any()
    make(kind, bias=False).reset_parameters()


@pytest.mark.parametrize("frozen", ["weight", "bias", "prior.weight", "latent.weight"])
def test_frozen_parameters_get_no_gradient(frozen):
    head = make()
    dict(head.named_parameters())[frozen].requires_grad_(False)
    g, targets = batch(4, 5)
    _, expected = truth(head, g, targets)
    assert frozen not in expected
    assert_close(gradients(head, head.nll(g, targets).mean()), expected)


def test_copies_keep_the_tie_and_the_loss():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(V, D)
            self.head = make(weight=self.embedding.weight)

    def saved(model: Model) -> Model:
        file, other = io.BytesIO(), Model()
        torch.save(model.state_dict(), file)
        file.seek(0)
        other.load_state_dict(torch.load(file, weights_only=True))
        return other

    # A local class cannot be pickled, so pickle its parts, together.
    model, (g, targets) = Model(), batch(4, 5)
    embedding, head = pickle.loads(pickle.dumps((model.embedding, model.head)))
    assert head.weight is embedding.weight
    assert torch.equal(head.nll(g, targets), model.head.nll(g, targets))
    for other in (copy.deepcopy(model), saved(model)):
        assert other.head.weight is other.embedding.weight
        assert torch.equal(other.head.nll(g, targets), model.head.nll(g, targets))
    assert model.to(torch.bfloat16).head.weight is model.embedding.weight


@pytest.mark.parametrize("sizes", [(1, IN, D, V, K), (6, IN, D, 1, K), (6, IN, D, V, 1)], ids=["N=1", "V=1", "K=1"])
def test_any_size_may_be_one(sizes):
    n, i, d, v, k = sizes
    head = MoSHead(i, d, v, k)
    g, targets = torch.randn(n, i), torch.randint(v, (n,))
    nll, expected = truth(head, g, targets)
    torch.testing.assert_close(head.nll(g, targets).double(), nll, rtol=1e-5, atol=1e-6)
    assert_close(gradients(head, head.nll(g, targets).mean()), expected)


def test_states_and_targets_may_be_non_contiguous():
    head = make()
    g, targets = torch.randn(IN, 5, 4).permute(2, 1, 0), torch.randint(V, (5, 4)).T
    nll, expected = truth(head, g, targets)
    torch.testing.assert_close(head.nll(g, targets).double(), nll, rtol=1e-5, atol=1e-6)
    assert_close(gradients(head, head.nll(g, targets).mean()), expected)


def test_a_batch_of_padding_has_no_loss_and_no_gradient():
    head = make()
    g, targets = torch.randn(4, 5, IN), torch.full((4, 5), -100)
    nll = head.nll(g, targets, ignore_index=-100)
    assert not nll.any()
    assert not any(x.any() for x in gradients(head, nll.sum()).values())


def test_a_nan_state_affects_only_its_own_loss():
    head = make()
    g, targets = batch(6)
    clean = head.nll(g, targets)
    g[2] = torch.nan
    nll = head.nll(g, targets)
    assert nll[2].isnan()
    keep = torch.arange(6) != 2
    assert torch.equal(nll[keep], clean[keep])


def test_logits_of_ten_thousand_stay_exact():
    inputs, targets = op_inputs(torch.float64)
    big = [inputs[0].detach(), inputs[1].detach(), 1e4 * inputs[2].detach(), inputs[3].detach()]
    expected = reference.mos_nll(*big, targets)
    assert expected.max() > 1e4
    torch.testing.assert_close(mos_nll(*big, targets), expected, rtol=1e-12, atol=0)
    single = mos_nll(*[x.float() for x in big], targets)
    torch.testing.assert_close(single.double(), expected, rtol=1e-5, atol=1e-2)


@pytest.mark.filterwarnings("ignore:(divide by zero|invalid value)")  # from numpy, in Triton's interpreter
@both
def test_padding_may_be_a_word_masked_by_an_infinite_bias(impl):
    """Its own loss would be infinite."""
    head = make(impl=impl)
    head.bias.data[0] = -torch.inf
    g, targets = torch.randn(12, IN), torch.randint(1, V, (12,))
    expected = gradients(head, head.nll(g[4:], targets[4:]).sum())
    targets[:4] = 0
    nll = head.nll(g, targets, ignore_index=0)
    assert not nll[:4].any()
    assert_close(gradients(head, nll.sum()), expected)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # of torch's compiler
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_compiled_head_on_the_gpu(mode, dtype):
    torch.compiler.reset()
    head = MoSHead(52, 36, 1003, 5, scale=1.0).to("cuda", dtype)
    compiled = torch.compile(head, fullgraph=True, mode=mode)
    for _ in range(3):
        g, targets = torch.randn(64, 52, device="cuda", dtype=dtype), torch.randint(1003, (64,), device="cuda")
        expected = gradients(head, head(g, targets).mean())
        torch.compiler.cudagraph_mark_step_begin()
        ours = gradients(head, compiled(g, targets).mean())
        assert_close(ours, expected, rtol=2e-2 if dtype == torch.bfloat16 else 1e-3, atol=1e-4)
