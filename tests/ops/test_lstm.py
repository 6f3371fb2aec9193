from functools import partial

import pytest
import torch
from torch import nn

from highrank.ops.dropout import weight_dropout
from highrank.ops.lstm import kernel, lstm, padded
from highrank.ops.lstm.layer import torch_lstm
from highrank.ops.lstm.padded import pad_weights, padded_lstm
from triton_interpreter import DEVICE, needs_kernels


def weights(module: nn.LSTM):
    return module.weight_ih_l0, module.weight_hh_l0, module.bias_ih_l0, module.bias_hh_l0


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_layer_equals_nn_lstm(device):
    module = nn.LSTM(5, 7).to(device)
    x, h, c = (torch.randn(*s, device=device) for s in ((9, 3, 5), (3, 7), (3, 7)))
    output, (h_last, c_last) = lstm(x, (h, c), *weights(module))
    expected, (h_expected, c_expected) = module(x, (h[None], c[None]))
    for a, b in ((output, expected), (h_last, h_expected[0]), (c_last, c_expected[0])):
        torch.testing.assert_close(a, b)


def test_a_split_sequence_continues_from_the_state():
    module = nn.LSTM(5, 7)
    x, state = torch.randn(8, 2, 5), (torch.zeros(2, 7), torch.zeros(2, 7))
    whole, _ = lstm(x, state, *weights(module))
    first, state = lstm(x[:3], state, *weights(module))
    second, _ = lstm(x[3:], state, *weights(module))
    torch.testing.assert_close(torch.cat([first, second]), whole)


@pytest.mark.parametrize("steps", [1, 4])
def test_a_short_sequence_equals_nn_lstm_in_values_and_gradients(steps):
    module = nn.LSTM(5, 7).double()
    x, h, c = (torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((steps, 3, 5), (3, 7), (3, 7)))
    leaves = [x, h, c, *weights(module)]
    results = []
    for output, (h_last, c_last) in (
        lstm(x, (h, c), *weights(module)),
        module(x, (h[None], c[None])),
    ):
        gradients = torch.autograd.grad(output.pow(2).sum() + h_last.sum() + (3 * c_last).sum(), leaves)
        results.append([output, h_last.view(3, 7), c_last.view(3, 7), *gradients])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)


def test_a_single_step_uses_the_dropped_recurrent_weights():
    module = nn.LSTM(5, 7).double()
    x, h, c = (torch.randn(*s, dtype=torch.float64) for s in ((1, 3, 5), (3, 7), (3, 7)))
    torch.manual_seed(1)
    output, _ = lstm(x, (h, c), *weights(module), weight_drop=0.5)
    torch.manual_seed(1)
    module.weight_hh_l0.data = weight_dropout(module.weight_hh_l0.data, 0.5)
    assert (module.weight_hh_l0 == 0).any()
    torch.testing.assert_close(output, module(x, (h[None], c[None]))[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("batch", [8, 3, 65])  # 65: too large for the persistent kernel
def test_padding_is_exact_in_values_and_gradients(batch):
    """A padded unit stays zero and receives no gradient, so only round-off can differ."""
    module = nn.LSTM(5, 7).double()
    x, h, c = (torch.randn(*s, dtype=torch.float64) for s in ((9, batch, 5), (batch, 7), (batch, 7)))
    results = []
    for function in (lstm, partial(padded_lstm, weight_drop=0.0, dtype=torch.float64)):
        leaves = [t.detach().clone().requires_grad_() for t in (x, h, c, *weights(module))]
        output, (h_last, c_last) = function(leaves[0], (leaves[1], leaves[2]), *leaves[3:])
        (output.pow(2).sum() + h_last.sum() + (3 * c_last).sum()).backward()
        results.append([output, h_last, c_last, *[leaf.grad for leaf in leaves]])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_padding_drops_the_same_recurrent_weights():
    module = nn.LSTM(5, 7).double()
    x, h, c = (torch.randn(*s, dtype=torch.float64) for s in ((9, 3, 5), (3, 7), (3, 7)))
    outputs = []
    for function in (lstm, partial(padded_lstm, dtype=torch.float64)):
        torch.manual_seed(1)
        outputs.append(function(x, (h, c), *weights(module), weight_drop=0.5)[0])
    torch.testing.assert_close(*outputs, rtol=1e-12, atol=1e-12)


@pytest.mark.gpu
@pytest.mark.parametrize(("inputs", "hidden", "batch"), [(280, 960, 12), (960, 620, 16), (300, 1150, 15)])
def test_half_precision_on_cuda_is_as_exact_as_torch(inputs, hidden, batch):
    module = nn.LSTM(inputs, hidden).cuda()
    shapes = ((30, batch, inputs), (batch, hidden), (batch, hidden))
    x, h, c = (torch.randn(*s, device="cuda") for s in shapes)

    def outputs(function, dtype):
        leaves = [t.detach().to(dtype).requires_grad_() for t in (x, *weights(module))]
        output, _ = function(leaves[0], (h.to(dtype), c.to(dtype)), *leaves[1:])
        output.float().pow(2).sum().backward()
        return [output.double(), *[leaf.grad.double() for leaf in leaves]]

    def plain_lstm(x, state, *weights):
        return torch_lstm(x, *state, *weights)

    truth = outputs(plain_lstm, torch.float64)
    plain, ours = outputs(plain_lstm, torch.float16), outputs(lstm, torch.float16)
    for t, a, b in zip(truth, plain, ours, strict=True):
        assert (b - t).norm() <= 2 * (a - t).norm() + 1e-3 * t.norm()


@needs_kernels
@pytest.mark.parametrize(("inputs", "hidden"), [(5, 7), (8, 16)])
def test_packed_weights_are_the_padded_ones_in_one_buffer(inputs, hidden):
    tensors = [w.detach().to(DEVICE) for w in weights(nn.LSTM(inputs, hidden))]
    packed = kernel.pack_weights(*tensors, 8, 16, torch.float16, None, 0.0)
    expected = pad_weights(*tensors, 8, 16, torch.float16)
    at = packed[0].data_ptr()
    for a, b in zip(packed, expected, strict=True):
        assert torch.equal(a, b)
        assert a.data_ptr() == at  # in the order that cuDNN needs
        at += a.nbytes


@needs_kernels
def test_unpacked_gradients_leave_out_the_padding():
    gates, inputs, hidden = 4, 5, 7
    grads = [torch.randn(s, device=DEVICE).half() for s in ((64, 8), (64, 16), (64,), (64,))]
    shapes = torch.Size((gates * hidden, inputs)), torch.Size((gates * hidden, hidden))
    unpacked = kernel.unpack_gradients(*grads, *shapes, torch.float32, None, 0.0)
    for packed, grad, columns in zip(grads, unpacked, (inputs, hidden, None, None), strict=True):
        inside = packed.unflatten(0, (gates, 16))[:, :hidden].flatten(0, 1)
        assert torch.equal(grad, inside[..., :columns].float() if columns else inside.float())


@needs_kernels
def test_the_weight_mask_is_random_scaled_and_the_same_in_backward():
    hidden, p = 32, 0.3
    tensors = [torch.ones(s, device=DEVICE) for s in ((128, 5), (128, hidden), (128,), (128,))]
    seeds = [torch.tensor([s], device=DEVICE) for s in (1, 2)]
    first, second = (kernel.pack_weights(*tensors, 8, hidden, torch.float16, s, p)[1].float() for s in seeds)
    assert set(first.unique().tolist()) == {0.0, torch.tensor(1 / (1 - p)).half().item()}
    assert abs((first == 0).float().mean().item() - p) < 0.03  # 4.2 standard deviations
    assert not torch.equal(first, second)
    grads = [torch.ones(s, device=DEVICE).half() for s in ((128, 8), (128, hidden), (128,), (128,))]
    shapes = torch.Size((128, 5)), torch.Size((128, hidden))
    unpacked = kernel.unpack_gradients(*grads, *shapes, torch.float32, seeds[0], p)[1]
    assert torch.equal(unpacked == 0, first == 0)
    torch.testing.assert_close(unpacked[unpacked > 0], torch.full_like(unpacked[unpacked > 0], 1 / (1 - p)))


@needs_kernels
def test_packed_weights_give_the_same_layer_and_gradients_as_padded_ones(monkeypatch):
    """Both round the same numbers once."""
    results = []
    for kernels in (True, False):
        monkeypatch.setattr(padded, "has_kernels", lambda device, kernels=kernels: kernels)
        torch.manual_seed(0)
        module = nn.LSTM(5, 7).to(DEVICE)
        x, h, c = (torch.randn(*s, device=DEVICE) for s in ((4, 3, 5), (3, 7), (3, 7)))
        output, (h, c) = padded_lstm(x, (h, c), *weights(module), 0.0, torch.float16, 8, 8)
        (output.float().pow(2).sum() + h.float().sum() + c.float().sum()).backward()
        results.append([output, h, c, *[w.grad for w in weights(module)]])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected)


@needs_kernels
def test_packed_weights_get_a_new_mask_at_every_call(monkeypatch):
    monkeypatch.setattr(padded, "has_kernels", lambda device: True)
    module = nn.LSTM(5, 7).to(DEVICE)
    x, h = torch.randn(4, 3, 5, device=DEVICE), torch.randn(3, 7, device=DEVICE)
    gradients = []
    for _ in range(2):
        module.zero_grad()
        padded_lstm(x, (h, h), *weights(module), 0.5, torch.float16, 8, 8)[0].float().pow(2).sum().backward()
        gradients.append(module.weight_hh_l0.grad)
    dropped = [gradient == 0 for gradient in gradients]
    assert all(0.3 < part.float().mean() < 0.7 for part in dropped)  # of 196; 5.6 standard deviations
    assert not torch.equal(*dropped)


@needs_kernels
def test_masked_packed_weights_have_the_gradients_of_padded_ones():
    """The mask is that of `ones`."""
    seed, p, wide = torch.tensor([1], device=DEVICE), 0.3, (8, 16, torch.float16)
    ones = [torch.ones(s, device=DEVICE) for s in ((28, 5), (28, 7), (28,), (28,))]
    mask = kernel.unpack_gradients(
        *kernel.pack_weights(*ones, *wide, None, 0.0), ones[0].shape, ones[1].shape, torch.float32, seed, p
    )[1]
    leaves = [torch.randn_like(one).requires_grad_() for one in ones]
    results = []
    for packed in (
        padded._PackedWeights.apply(*leaves, *wide, seed, p),
        pad_weights(leaves[0], leaves[1] * mask, *leaves[2:], *wide),
    ):
        loss = sum(w.float().pow(3).sum() for w in packed)
        results.append(torch.autograd.grad(loss, leaves))
    for ours, expected in zip(*results, strict=True):
        assert ours.any()
        torch.testing.assert_close(ours, expected, rtol=4e-3, atol=1e-5)  # half precision, rounded in another order


@needs_kernels
def test_a_weight_drop_of_one_drops_everything():
    tensors = [torch.ones(s, device=DEVICE) for s in ((28, 5), (28, 7), (28,), (28,))]
    assert not kernel.pack_weights(*tensors, 8, 8, torch.float16, torch.tensor([1], device=DEVICE), 1.0)[1].any()


@pytest.mark.gpu
def test_packed_weights_need_no_copy_by_cudnn(recwarn):
    """torch warns when it has to copy weights into one buffer; this test does not filter that warning."""
    tensors = [w.detach() for w in weights(nn.LSTM(5, 7).cuda())]
    packed = kernel.pack_weights(*tensors, 128, 128, torch.float16, None, 0.0)
    x, h, c = (torch.zeros(*s, device="cuda", dtype=torch.float16) for s in ((9, 8, 128), (1, 8, 128), (1, 8, 128)))
    torch.lstm(x, [h, c], list(packed), True, 1, 0.0, True, False, False)
    assert not [w for w in recwarn if "contiguous chunk" in str(w.message)]


@pytest.mark.gpu
def test_weight_drop_on_cuda_is_fresh_at_every_call_and_masks_the_gradient():
    module = nn.LSTM(5, 7).cuda().half()
    x, h = torch.randn(9, 3, 5, device="cuda").half(), torch.zeros(3, 7, device="cuda").half()
    torch.manual_seed(5)
    first, second = (lstm(x, (h, h), *weights(module), weight_drop=0.5)[0] for _ in range(2))
    assert not torch.equal(first, second)
    first.float().pow(2).sum().backward()
    torch.manual_seed(5)
    seed = torch.randint(2**62, (1,), device="cuda")  # as the first call drew it
    ones = [torch.ones_like(w) for w in weights(module)]
    mask = (
        kernel.pack_weights(*ones, 128, 128, torch.float16, seed, 0.5)[1]
        .unflatten(0, (4, 128))[:, :7, :7]
        .flatten(0, 1)
    )
    assert torch.equal(module.weight_hh_l0.grad != 0, mask != 0)
