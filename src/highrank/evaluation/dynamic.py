"""Dynamic evaluation (Krause et al. 2017), as the paper uses it: the model keeps learning from the text it has just
predicted, and decays towards its trained weights.

    R     = sqrt( sum over statistics batches of grad^2 )                    root of the sum, not of the mean
    decay = min( R / (sum over parameter tensors of mean(R)), 1 / lambda )
    theta <- theta + lambda decay (theta0 - theta) - lr grad / (R + epsilon)        after every segment

Gradients are those of the mean loss of a segment, without dropout. The statistics R come from the training text, read
in segments of the same length by a batch of columns. Every segment is predicted before the model learns from it, so the
result is a valid perplexity of an adapting model. The model that is passed in is never changed.

Predictions are in float32. The statistics use TF32 on an NVIDIA GPU: R only scales the steps, so an error of 0.1 % does
not matter, and they are most of the arithmetic, as much as ten passes over the test set of Penn Treebank.

Shapes: with the paper's settings, a segment has (5, 1) words and a statistics batch (5, 100).
"""

import contextlib
import copy
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from highrank.data.batches import columns
from highrank.evaluation.perplexity import Evaluation
from highrank.models.language_model import LanguageModel
from highrank.ops.cuda_graph import capture
from highrank.progress import OnProgress, no_progress
from highrank.recipes.recipe import DynamicSettings

REPORT_EVERY = 50  # segments


def gradient_statistics(
    model: LanguageModel, ids: Tensor, settings: DynamicSettings, on_progress: OnProgress = no_progress
) -> list[Tensor]:
    """Compute R, one tensor per parameter, from the training text `ids`."""
    model = copy.deepcopy(model).eval()
    device = next(model.parameters()).device
    stream = columns(ids.to(device), min(settings.stats_batch_size, len(ids) // 2))
    sums = [torch.zeros_like(p) for p in model.parameters()]

    def accumulate() -> None:
        for total, p in zip(sums, model.parameters(), strict=True):
            assert p.grad is not None
            total.addcmul_(p.grad, p.grad)

    with _tf32_products():
        for _ in _segments(model, stream[:-1], stream[1:], settings.segment, accumulate, on_progress):
            pass
    return [total.sqrt_() for total in sums]


@contextlib.contextmanager
def _tf32_products() -> Iterator[None]:
    """Compute float32 matrix products as TF32 on an NVIDIA GPU, which is many times faster; no effect elsewhere."""
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "tf32"
    try:
        yield
    finally:
        matmul.fp32_precision = before


def dynamic_evaluate(
    model: LanguageModel,
    ids: Tensor,  # (T,)
    statistics: list[Tensor],
    settings: DynamicSettings,
    on_progress: OnProgress = no_progress,
) -> Evaluation:
    """Compute the losses of ids[1:] with a copy of the model that learns after every segment."""
    model = copy.deepcopy(model).eval()
    device = next(model.parameters()).device
    parameters = list(model.parameters())
    start = [p.detach().clone() for p in parameters]
    scale = torch.stack([r.mean() for r in statistics]).sum()
    # The factors of the update, computed once. lambda * min(R / scale, 1 / lambda) is written as
    # min(lambda * R / scale, 1), because 1 / lambda overflows float32 for a tiny lambda.
    pull = [(settings.lamb * (r / scale)).clamp(max=1) for r in statistics]
    rate = [settings.lr / (r + settings.epsilon) for r in statistics]

    def adapt() -> None:
        for p, p0, towards, step in zip(parameters, start, pull, rate, strict=True):
            assert p.grad is not None
            p.lerp_(p0, towards).addcmul_(p.grad, step, value=-1)

    words = ids[:-1, None].to(device)  # (T - 1, 1)
    targets = ids[1:, None].to(device)
    segments = _segments(model, words, targets, settings.segment, adapt, on_progress)
    return Evaluation(torch.cat([nll[:, 0].double() for nll in segments]))


def _segments(
    model: LanguageModel,
    words: Tensor,  # (T, B)
    targets: Tensor,
    segment: int,
    after: Callable[[], None],  # called while the parameters hold the gradient of the segment's mean loss
    on_progress: OnProgress,
) -> Iterator[Tensor]:
    """For each segment: predict it, differentiate its mean loss, call `after`, and yield its (segment, B) losses."""
    state = model.initial_state(words.shape[1])

    def process(x: Tensor, y: Tensor) -> Tensor:
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

    run = _GraphReplay(process) if words.is_cuda else process
    for start in range(0, len(words), segment):
        yield run(words[start : start + segment], targets[start : start + segment])
        if start // segment % REPORT_EVERY == 0:
            on_progress(start, len(words))
    on_progress(len(words), len(words))


class _GraphReplay:
    """Runs `function` as a CUDA graph, because a segment is a few hundred tiny kernels and there are thousands of them.

    The first two calls run eagerly, so that libraries choose their algorithms; the third is captured, and later calls
    replay it. A last segment that is shorter runs eagerly.
    """

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.function = function
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.x = self.y = self.nll = torch.empty(0)

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        self.calls += 1
        if self.graph is None and self.calls > 2:
            self.x, self.y = x.clone(), y.clone()
            self.graph, self.nll = capture(lambda: self.function(self.x, self.y), x.device)
        if self.graph is None or x.shape != self.x.shape:
            return self.function(x, y)
        self.x.copy_(x)
        self.y.copy_(y)
        self.graph.replay()
        return self.nll.clone()  # the next replay overwrites it
