"""Implementations of the loss of a mixture of softmaxes: highrank's, the naive one, and other projects'.

Any linear cross-entropy that returns one loss per row can be composed into MoS over N K rows:

    -log p(y) = -logsumexp_k(log pi_k - nll_k),      nll_k = cross-entropy of row k

Peers that are not installed are left out; `missing_peers` names them.

Shapes: h (N, K, D), log_pi (N, K), w (V, D), b (V,), y (N,) -> (N,).
"""

import importlib
import importlib.metadata
import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from highrank.ops import has_kernels
from highrank.ops.mos_nll import Impl, mos_nll, reference
from highrank.training.step import TRAINING_SLAB_BYTES

Loss = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
RowLoss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
Shape = tuple[int, int, int, int]  # N, K, D, V
PEERS = {"cut_cross_entropy": "cut-cross-entropy", "liger_kernel": "liger-kernel"}  # module: distribution


@dataclass(frozen=True)
class Implementation:
    """A loss, and what must be known before it is measured."""

    name: str
    load: Callable[[], Loss]  # imports what it needs, and may fail
    distribution: str = "highrank"  # the package that it belongs to
    graph: bool = False  # whether a CUDA graph can hold it
    bytes_per_logit: int = 0  # of the memory that it needs for all N K V logits, if it builds them

    @property
    def version(self) -> str | None:
        """Return the version of the package, or None if it is not installed as one."""
        if self.distribution == "torch":
            return torch.__version__
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return None


def implementations(device: torch.device, dtype: torch.dtype, compiled: bool = False) -> list[Implementation]:
    """List the implementations that run on the device and are installed, highrank's first."""
    cuda = device.type == "cuda"
    found = [Implementation("highrank, chunked", lambda: _highrank("chunked"), graph=True)]
    if cuda and has_kernels(device):
        large = f"highrank, triton, {TRAINING_SLAB_BYTES >> 20} MiB"  # as in training: fewer launches, more memory
        found.append(Implementation("highrank, triton", lambda: _highrank("triton"), graph=True))
        found.append(Implementation(large, lambda: _highrank("triton", TRAINING_SLAB_BYTES), graph=True))
    wide = 12 if dtype == torch.float32 else 16  # measured: the logits, their exponentials and gradients
    found.append(Implementation("naive", lambda: naive, "torch", graph=True, bytes_per_logit=wide))
    if compiled:
        found.append(Implementation("naive, torch.compile", _compiled_naive, "torch", bytes_per_logit=wide))
    if hasattr(F, "linear_cross_entropy"):  # torch >= 2.13
        name = "linear_cross_entropy"
        found.append(Implementation(name, lambda: _torch_linear(chunked=False), "torch", bytes_per_logit=wide))
        found.append(Implementation(f"{name}, chunked", lambda: _torch_linear(chunked=True), "torch"))
    if cuda and importlib.util.find_spec("cut_cross_entropy"):
        found.append(Implementation("cut-cross-entropy, exact", cut_cross_entropy, PEERS["cut_cross_entropy"]))
    if cuda and importlib.util.find_spec("liger_kernel"):
        # Not in a graph: it reads a value from the device, which fails a capture.
        found.append(Implementation("Liger", _liger, PEERS["liger_kernel"]))
    return found


def missing_peers(device: torch.device) -> list[str]:
    """Name the peers that would be measured on this device if they were installed."""
    absent = [name for module, name in PEERS.items() if device.type == "cuda" and not importlib.util.find_spec(module)]
    return absent + ([] if hasattr(F, "linear_cross_entropy") else ["torch >= 2.13 (linear_cross_entropy)"])


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


def relative_errors(loss: Loss, shape: Shape, device: torch.device, dtype: torch.dtype) -> tuple[float, float]:
    """Return the relative errors of the loss and of its worst gradient against float64.

    They are measured on 48 tokens and 1,000 words, with an upstream gradient that differs between tokens.
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
    nll, *grads = (float((x.double() - truth).norm() / truth.norm()) for x, truth in pairs)
    return nll, max(grads)


# --- the losses -----------------------------------------------------------------------------------------------------


def naive(h: Tensor, log_pi: Tensor, w: Tensor, b: Tensor, y: Tensor) -> Tensor:
    """Compute the paper's equations as written: all (N, K, V) probabilities, their mixture, its log (at least 1e-8)."""
    p = torch.softmax(F.linear(h, w.to(h.dtype), b.to(h.dtype)).float(), dim=-1)
    mixed = (p * log_pi.exp()[:, :, None]).sum(1)
    return F.nll_loss(torch.log(mixed + 1e-8), y, reduction="none")


def plain_softmax(h: Tensor, log_pi: Tensor, w: Tensor, b: Tensor, y: Tensor) -> Tensor:
    """Compute torch's own softmax loss, for K = 1."""
    return F.cross_entropy(F.linear(h[:, 0], w, b).float(), y, reduction="none")


def compose(row_loss: RowLoss) -> Loss:
    """Turn a linear cross-entropy into the loss of a mixture, on N K rows."""

    def loss(h: Tensor, log_pi: Tensor, w: Tensor, b: Tensor, y: Tensor) -> Tensor:
        n, k, d = h.shape
        rows = row_loss(h.reshape(n * k, d), w.to(h.dtype), b.to(h.dtype), y.repeat_interleave(k)).float()
        return -torch.logsumexp(log_pi - rows.view(n, k), dim=1)

    return loss


def cut_cross_entropy() -> Loss:
    """Load apple/ml-cross-entropy in its exact mode, which does not drop small gradients."""
    module = importlib.import_module("cut_cross_entropy")
    linear_cross_entropy = module.linear_cross_entropy
    # Older releases have no name for the exact mode, but their filter of small gradients can be turned off.
    exact = {"impl": "cce_exact"} if hasattr(module.LinearCrossEntropyImpl, "CCE_EXACT") else {"filter_eps": None}
    if "bias" in inspect.signature(linear_cross_entropy).parameters:
        return compose(lambda a, w, b, y: linear_cross_entropy(a, w, y, bias=b, reduction="none", **exact))

    def with_bias_column(a: Tensor, w: Tensor, b: Tensor, y: Tensor) -> Tensor:
        # Without a bias argument, the bias becomes a column of w against ones, padded to a multiple of 16.
        padding = -(a.shape[1] + 1) % 16
        a = torch.cat([a, a.new_ones(len(a), 1), a.new_zeros(len(a), padding)], dim=1)
        w = torch.cat([w, b[:, None], w.new_zeros(len(w), padding)], dim=1)
        loss: Tensor = linear_cross_entropy(a, w, y, reduction="none", **exact)
        return loss

    return compose(with_bias_column)


def _highrank(impl: Impl, slab_bytes: int | None = None) -> Loss:
    return lambda h, log_pi, w, b, y: mos_nll(h, log_pi, w, b, y, impl=impl, slab_bytes=slab_bytes)


def _compiled_naive() -> Loss:
    torch._dynamo.reset()  # so that every size is compiled for itself, not for sizes in general
    compiled: Loss = torch.compile(naive, dynamic=False)
    return compiled


def _torch_linear(chunked: bool) -> Loss:
    options = torch.nn.LinearCrossEntropyOptions() if chunked else None
    return compose(lambda a, w, b, y: F.linear_cross_entropy(a, w, y, linear_bias=b, reduction="none", options=options))


def _liger() -> Loss:
    functional = importlib.import_module("liger_kernel.transformers.functional")
    loss = functional.liger_fused_linear_cross_entropy
    return compose(lambda a, w, b, y: loss(a, w, y, bias=b, reduction="none"))
