"""Dynamic evaluation (Krause et al. 2017), as the paper uses it: the model goes on learning from the text it has just
predicted, pulled back towards where it started.

    R     = sqrt( sum over statistics batches of grad^2 )                    root of the sum, not of the mean
    decay = min( R / (sum over parameter tensors of mean(R)), 1 / lambda )
    theta <- theta + lambda decay (theta0 - theta) - lr grad / (R + epsilon)        after every segment

Gradients are of the mean loss of a segment, with dropout off. The statistics come from the training text, a batch of
columns at a time in segments of the same length. Every segment is predicted before the model learns from it, so this
is a fair perplexity of a model that adapts. The model handed in is never changed.

Predictions are in float32; inside cuDNN's LSTM alone torch lets an NVIDIA GPU round products to TF32, as in any float32
evaluation (torch.backends.cudnn.rnn.fp32_precision). The statistics' other products may be TF32 too: R only scales the
steps, a thousandth of it is nothing, and the statistics are most of the arithmetic: ten of the paper's test sets.

Shapes: a segment is (5, 1) words with the paper's settings; statistics batches are (5, 100).
"""

import contextlib
import copy
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from highrank.data.batches import columns
from highrank.errors import UserError
from highrank.evaluation.fingerprint import fingerprint
from highrank.evaluation.perplexity import Evaluation
from highrank.files import read_tensors, write_tensors
from highrank.models.language_model import LanguageModel
from highrank.ops.cuda_graph import capture
from highrank.progress import OnProgress
from highrank.recipes.recipe import DynamicSettings


def gradient_statistics(
    model: LanguageModel, ids: Tensor, settings: DynamicSettings, on_progress: OnProgress | None = None
) -> list[Tensor]:
    """R by parameter: the root of the summed squared gradients over the training text."""
    model = copy.deepcopy(model).eval()
    device = next(model.parameters()).device
    stream = columns(ids.to(device), min(settings.stats_batch_size, len(ids) // 2))
    sums = [torch.zeros_like(p) for p in model.parameters()]

    def accumulate() -> None:
        for total, p in zip(sums, model.parameters(), strict=True):
            assert p.grad is not None
            total.addcmul_(p.grad, p.grad)

    with _tensor_cores():
        for _ in _segments(model, stream[:-1], stream[1:], settings.segment, accumulate, on_progress):
            pass
    return [total.sqrt_() for total in sums]


@contextlib.contextmanager
def _tensor_cores() -> Iterator[None]:
    """Float32 matrix products on an NVIDIA GPU as TF32, many times as fast; elsewhere nothing changes."""
    matmul = torch.backends.cuda.matmul
    before, matmul.fp32_precision = matmul.fp32_precision, "tf32"
    try:
        yield
    finally:
        matmul.fp32_precision = before


def dynamic_evaluate(
    model: LanguageModel,
    ids: Tensor,  # (T,)
    statistics: list[Tensor],
    settings: DynamicSettings,
    on_progress: OnProgress | None = None,
) -> Evaluation:
    """Mean loss of ids[1:] by a copy of the model that adapts after every segment."""
    model = copy.deepcopy(model).eval()
    device = next(model.parameters()).device
    parameters = list(model.parameters())
    start = [p.detach().clone() for p in parameters]
    scale = torch.stack([r.mean() for r in statistics]).sum()
    # Two tensors a parameter, made once: lambda decay, whose clip at 1 / lambda is one of the product at 1 (no float32
    # holds the inverse of a tiny lambda), and lr / (R + epsilon).
    pull = [(settings.lamb * (r / scale)).clamp(max=1) for r in statistics]
    rate = [settings.lr / (r + settings.epsilon) for r in statistics]

    def adapt() -> None:
        for p, p0, towards, step in zip(parameters, start, pull, rate, strict=True):
            assert p.grad is not None
            p.lerp_(p0, towards).addcmul_(p.grad, step, value=-1)

    words, targets = ids[:-1, None].to(device), ids[1:, None].to(device)  # (T - 1, 1)
    total = torch.zeros((), dtype=torch.float64, device=device)
    for nll in _segments(model, words, targets, settings.segment, adapt, on_progress):
        total += nll.double().sum()
    return Evaluation((total / (len(ids) - 1)).item(), len(ids) - 1)


def _segments(
    model: LanguageModel,
    words: Tensor,  # (T, B)
    targets: Tensor,
    segment: int,
    after: Callable[[], None],  # with the gradient of the segment's mean loss in place
    on_progress: OnProgress | None,
) -> Iterator[Tensor]:
    """Predict a segment, differentiate its mean loss, call `after`; yields the (segment, B) losses in turn."""
    state = model.initial_state(words.shape[1])

    def one(x: Tensor, y: Tensor) -> Tensor:
        for p in model.parameters():
            p.grad = None
        with torch.enable_grad():
            nll, hidden = model(x, y, state)
            nll.mean().backward()
        with torch.no_grad():
            after()
            for (h, c), (new_h, new_c) in zip(state, hidden.state, strict=True):
                h.copy_(new_h)
                c.copy_(new_c)
        return nll.detach()

    run = _Replayed(one) if words.is_cuda else one
    for start in range(0, len(words), segment):
        yield run(words[start : start + segment], targets[start : start + segment])
        if on_progress and start // segment % 50 == 0:
            on_progress(start, len(words))
    if on_progress:
        on_progress(len(words), len(words))


class _Replayed:
    """`one` as a CUDA graph: thousands of equal segments, each a few hundred tiny kernels.

    The first two segments run eagerly and warm the libraries up; the third is captured. A shorter last one is eager.
    """

    def __init__(self, one: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.one, self.calls = one, 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.x = self.y = self.nll = torch.empty(0)

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        self.calls += 1
        if self.graph is None and self.calls > 2:
            self.x, self.y = x.clone(), y.clone()
            self.graph, self.nll = capture(lambda: self.one(self.x, self.y), x.device)
        if self.graph is None or x.shape != self.x.shape:
            return self.one(x, y)
        self.x.copy_(x)
        self.y.copy_(y)
        self.graph.replay()
        return self.nll


def cached_statistics(
    model: LanguageModel,
    ids: Tensor,
    settings: DynamicSettings,
    cache: Path,
    on_progress: OnProgress | None = None,
) -> list[Tensor]:
    """The statistics, kept in `cache` under a name that tells the model, the text and the settings."""
    name = fingerprint(f"{settings.segment} {settings.stats_batch_size}", model, ids)
    file = cache / "dynamic" / f"{name}.safetensors"
    names = [name for name, _ in model.named_parameters()]
    device = next(model.parameters()).device
    with contextlib.suppress(UserError, KeyError):  # absent or damaged: they are computed again
        stored = read_tensors(file, "cached statistics")
        return [stored[name].to(device) for name in names]
    statistics = gradient_statistics(model, ids, settings, on_progress)
    with contextlib.suppress(UserError):  # nowhere to keep them: that must not cost what was just computed
        write_tensors(file, {name: r.cpu() for name, r in zip(names, statistics, strict=True)})
    return statistics
