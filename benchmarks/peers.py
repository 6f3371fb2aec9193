"""Implementations of the loss of a mixture of softmaxes: highrank's, the naive one, and other projects'.

Any linear cross-entropy that returns one loss per row can be composed into MoS over N K rows:

    -log p(y) = -logsumexp_k(log pi_k - nll_k),      nll_k = cross-entropy of row k

Shapes: h (N, K, D), log_pi (N, K), w (V, D), b (V,), y (N,) -> (N,).
"""

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from highrank.ops.mos_nll import mos_nll, reference
from highrank.training.precision import TRAINING_SLAB_BYTES

Loss = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
RowLoss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
Shape = tuple[int, int, int, int]  # N, K, D, V


def naive(h: Tensor, log_pi: Tensor, w: Tensor, b: Tensor, y: Tensor) -> Tensor:
    """Compute the paper's equations as written: all (N, K, V) probabilities, their mixture, its log (at least 1e-8)."""
    p = torch.softmax(F.linear(h, w.to(h.dtype), b.to(h.dtype)).float(), dim=-1)
    mixed = (p * log_pi.exp()[:, :, None]).sum(1)
    return F.nll_loss(torch.log(mixed + 1e-8), y, reduction="none")


def plain_softmax(h: Tensor, log_pi: Tensor, w: Tensor, b: Tensor, y: Tensor) -> Tensor:
    """Compute torch's own softmax loss, for K = 1."""
    return F.cross_entropy(F.linear(h[:, 0], w, b).float(), y, reduction="none") - log_pi[:, 0]


def compose(row_loss: RowLoss) -> Loss:
    """Turn a linear cross-entropy into the loss of a mixture, on N K rows."""

    def loss(h: Tensor, log_pi: Tensor, w: Tensor, b: Tensor, y: Tensor) -> Tensor:
        n, k, d = h.shape
        rows = row_loss(h.reshape(n * k, d), w.to(h.dtype), b.to(h.dtype), y.repeat_interleave(k)).float()
        return -torch.logsumexp(log_pi - rows.view(n, k), dim=1)

    return loss


def _compiled_naive() -> Loss:
    torch._dynamo.reset()  # so that every size is compiled for itself, not for sizes in general
    compiled: Loss = torch.compile(naive, dynamic=False)
    return compiled


def _torch_linear(chunked: bool) -> Loss:
    function = F.linear_cross_entropy  # torch >= 2.13
    options = torch.nn.LinearCrossEntropyOptions() if chunked else None
    return compose(lambda a, w, b, y: function(a, w, y, linear_bias=b, reduction="none", options=options))


def cut_cross_entropy() -> Loss:
    """Load apple/ml-cross-entropy, with its filter of small gradients turned off."""
    function = importlib.import_module("cut_cross_entropy").linear_cross_entropy
    exact = partial(function, reduction="none", filter_eps=None)
    if "bias" in inspect.signature(function).parameters:
        return compose(lambda a, w, b, y: exact(a, w, y, bias=b))

    def row_loss(a: Tensor, w: Tensor, b: Tensor, y: Tensor) -> Tensor:
        # The releases on PyPI, up to 25.1.1, take no bias (the main branch does): the bias is a column of w against
        # ones, padded to a multiple of 16. These copies of a and w are nearly all of the extra memory.
        padding = -(a.shape[1] + 1) % 16
        a = torch.cat([a, a.new_ones(len(a), 1), a.new_zeros(len(a), padding)], dim=1)
        w = torch.cat([w, b[:, None], w.new_zeros(len(w), padding)], dim=1)
        loss: Tensor = exact(a, w, y)
        return loss

    return compose(row_loss)


def _liger() -> Loss:
    function = importlib.import_module("liger_kernel.transformers.functional").liger_fused_linear_cross_entropy
    return compose(lambda a, w, b, y: function(a, w, y, bias=b, reduction="none"))


@dataclass(frozen=True)
class Implementation:
    """A loss, and what must be known before it is measured."""

    name: str
    load: Callable[[], Loss]  # raises an exception if its package is not installed
    package: str = ""  # whose version is recorded, if it is not highrank's
    graph: bool = False  # whether a CUDA graph can hold it; Liger reads a value from the device, which fails a capture
    builds_logits: bool = False  # whether all N K V logits are in memory at the same time
    gpu_only: bool = False


LARGE = f"highrank, triton, {TRAINING_SLAB_BYTES >> 20} MiB"  # as in training: fewer launches, more memory
large_slabs = partial(mos_nll, impl="triton", slab_bytes=TRAINING_SLAB_BYTES)
IMPLEMENTATIONS = (
    Implementation("highrank, chunked", lambda: partial(mos_nll, impl="chunked"), graph=True),
    Implementation("highrank, triton", lambda: partial(mos_nll, impl="triton"), graph=True, gpu_only=True),
    Implementation(LARGE, lambda: large_slabs, graph=True, gpu_only=True),
    Implementation("naive", lambda: naive, "torch", graph=True, builds_logits=True),
    Implementation("naive, torch.compile", _compiled_naive, "torch", builds_logits=True, gpu_only=True),
    Implementation("linear_cross_entropy", lambda: _torch_linear(chunked=False), "torch", builds_logits=True),
    Implementation("linear_cross_entropy, chunked", lambda: _torch_linear(chunked=True), "torch"),
    Implementation("cut-cross-entropy, exact", cut_cross_entropy, "cut-cross-entropy", gpu_only=True),
    Implementation("Liger", _liger, "liger-kernel", gpu_only=True),
)
MIXTURE = Implementation("highrank", lambda: mos_nll, graph=True)
ONE_SOFTMAX = Implementation("highrank, K = 1", lambda: mos_nll, graph=True)
TORCH_SOFTMAX = Implementation("cross_entropy, K = 1", lambda: plain_softmax, "torch", graph=True)


def make_inputs(shape: Shape, device: torch.device, dtype: torch.dtype) -> Inputs:
    """Return random h, log_pi, w, b and y of the given shape, the same on every call."""
    n, k, d, v = shape
    torch.manual_seed(0)
    h = torch.randn(n, k, d, device=device).tanh().to(dtype).requires_grad_()
    log_pi = torch.randn(n, k, device=device).log_softmax(-1).requires_grad_()
    w = (torch.randn(v, d, device=device) * 0.1).to(dtype).requires_grad_()
    b = (torch.randn(v, device=device) * 0.1).to(dtype).requires_grad_()
    return h, log_pi, w, b, torch.randint(v, (n,), device=device)


def forward_backward(loss: Loss, inputs: Inputs) -> None:
    """Compute the mean loss and its gradients; the gradients of the previous call are dropped first."""
    for x in inputs[:4]:
        x.grad = None
    loss(*inputs).mean().backward()


@torch.enable_grad()
def responsibilities(h: Tensor, log_pi: Tensor, w: Tensor, b: Tensor, y: Tensor) -> Tensor:
    """Return r (N, K): minus the gradient of the loss with respect to log pi."""
    log_pi = log_pi.detach().requires_grad_()
    nll = mos_nll(h.detach(), log_pi, w.detach(), b.detach(), y)
    return -torch.autograd.grad(nll.sum(), log_pi)[0]


def relative_error(loss: Loss, shape: Shape, device: torch.device, dtype: torch.dtype) -> float:
    """Return the largest relative error of the loss and its gradients against float64; NaN if one of them is.

    They are computed for 48 tokens and 1,000 words, with an upstream gradient that differs between tokens.
    """
    _, k, d, _ = shape  # kernels are compiled for K and D, so these are the ones of the timed calls
    inputs = make_inputs((48, k, d, 1000), device, dtype)
    upstream = torch.linspace(0.5, 1.5, 48, device=device)

    def results(function: Loss, dtype: torch.dtype | None) -> list[Tensor]:
        leaves = [x.detach().to(dtype or x.dtype).requires_grad_() for x in inputs[:4]]
        h, log_pi, w, b = leaves
        nll = function(h, log_pi, w, b, inputs[4])
        return [nll.detach(), *torch.autograd.grad(nll, leaves, upstream.to(nll.dtype))]

    pairs = zip(results(loss, None), results(reference.mos_nll, torch.float64), strict=True)
    return float(torch.stack([(x.double() - truth).norm() / truth.norm() for x, truth in pairs]).max())
